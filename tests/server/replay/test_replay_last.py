"""Listeners with `?replay=last`: a new subscription gets the last message of each topic, then live ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit import hermod, ubre
from kit.broker import Broker
from kit.frames import pub, read_pubs
from kit.nanomsg import FilePeer
from kit.program import polycast_here
from kit.replay import Delivered, handshake, publish, read_messages, total, wait_for_total
from kit.room import GREETING
from kit.subscribers import LISTEN, SUBSCRIBERS, SubscriberKind, send_request, wait_until_subscribed
from kit.ubre import UbrePeer
from kit.wire import Peer, wait_for

LAST = "?replay=last"
SILENT_SUBSCRIBERS = [name for name in SUBSCRIBERS if name != "hermod"]
"""Dialects without a start position in their protocol."""


@pytest.fixture
def last(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path, listen=LISTEN, options=LAST) as broker:
        yield broker


def publish_messages(broker: Broker, *messages: tuple[str, bytes]) -> None:
    with broker.connect("hermod.pub") as peer:
        publish(peer, messages)


def expect(kind: SubscriberKind, peer: Peer, topic: str, sequence: int, payload: bytes) -> None:
    peer.expect(kind.frame(topic, sequence, payload))


def test_the_last_message_then_live_messages(last: Broker) -> None:
    publish_messages(last, ("t", b"first"), ("t", b"second"))
    with ExitStack() as stack:
        peers = {name: stack.enter_context(kind.open(last, "t", 0)) for name, kind in SUBSCRIBERS.items()}
        for name, peer in peers.items():
            expect(SUBSCRIBERS[name], peer, "t", 1, b"second")
        publish_messages(last, ("t", b"third"), ("t", b"fourth"))
        for name, peer in peers.items():
            expect(SUBSCRIBERS[name], peer, "t", 2, b"third")
            expect(SUBSCRIBERS[name], peer, "t", 3, b"fourth")
            assert peer.read == b""


def test_a_topic_without_messages_has_no_last_message(last: Broker) -> None:
    with ExitStack() as stack:
        peers = {name: stack.enter_context(kind.open(last, "t", 0)) for name, kind in SUBSCRIBERS.items()}
        wait_for_total(last, "replays_open", 0)
        publish_messages(last, ("t", b"first"))
        for name, peer in peers.items():
            expect(SUBSCRIBERS[name], peer, "t", 0, b"first")


@pytest.mark.parametrize("name", ["simplest", "nanomsg"])
def test_the_last_message_of_each_topic_in_log_order(last: Broker, name: str) -> None:
    kind = SUBSCRIBERS[name]
    publish_messages(
        last, ("topic/b", b"1"), ("topic/a", b"2"), ("topic/b", b"3"), ("topic/c", b"4"), ("topic/a", b"5")
    )
    with kind.open(last, "topic", 0) as peer:
        expect(kind, peer, "topic/b", 1, b"3")
        expect(kind, peer, "topic/c", 0, b"4")
        expect(kind, peer, "topic/a", 1, b"5")
        publish_messages(last, ("topic/b", b"6"))
        expect(kind, peer, "topic/b", 2, b"6")
        assert peer.read == b""


def test_a_listener_that_has_no_such_setting_gives_what_is_new(tmp_path: Path) -> None:
    extra = f"--listen=simplest=tcp://127.0.0.1:0{LAST}"
    with Broker(extra, data=tmp_path, listen=LISTEN) as broker:
        plain, replaying = (int(at.rpartition(":")[2]) for name, at in broker.addresses if name == "simplest")
        publish_messages(broker, ("t", b"old"))
        for port, before in ((plain, b""), (replaying, pub("t", b"old"))):
            with Peer(port) as peer:
                peer.send(b"sub t\n")
                wait_until_subscribed(broker, peer)
                wait_for_total(broker, "replays_open", 0)
                publish_messages(broker, ("t", b"old"))
                peer.expect(before + pub("t", b"old"))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_after_a_restart(tmp_path: Path, how: str) -> None:
    flags = ("--set=log.segment_bytes=65536",)
    with Broker(*flags, data=tmp_path, listen=LISTEN, options=LAST) as broker:
        publish_messages(broker, ("rare", b"long ago"))
        for begin in range(0, 1000, 100):
            publish_messages(broker, *[("often", b"%d" % n + b"." * 500) for n in range(begin, begin + 100)])
        wait_for(lambda: total(broker, "log_segments_sealed_total") > 3, "sealed segments")
        if how == "killed":
            broker.kill()
    with Broker(*flags, data=tmp_path, listen=LISTEN, options=LAST) as broker, ExitStack() as stack:
        for name in SILENT_SUBSCRIBERS:
            kind = SUBSCRIBERS[name]
            peer = stack.enter_context(kind.open(broker, "rare", 0))
            expect(kind, peer, "rare", 0, b"long ago")
        peer = stack.enter_context(SUBSCRIBERS["fanout"].open(broker, "often", 0))
        peer.expect(b"often!999" + b"." * 500 + b"\n")


def test_implicit_subscriptions_of_a_fanout_client(last: Broker) -> None:
    publish_messages(last, ("all", b"hear ye"), ("other", b"x"))
    with last.connect("fanout.client") as peer:
        peer.expect(GREETING + b"all!hear ye\n")
        peer.send(b"subscribe >\n")
        found = {peer.read_until(b"\n") for _ in range(2)}
        assert found == {b"all!hear ye\n", b"other!x\n"}


def test_a_repeated_subscription_replays_nothing(last: Broker) -> None:
    publish_messages(last, ("t", b"x"))
    with SUBSCRIBERS["simplest"].open(last, "t", 0) as peer:
        peer.expect(pub("t", b"x"))
        peer.send(b"sub t\n" * 3)
        publish_messages(last, ("t", b"y"))
        peer.expect(pub("t", b"y"))
        wait_for_total(last, "replays_open", 0)
        assert peer.read == b""


def test_a_repeated_subscription_with_another_encoder_replays_nothing(last: Broker) -> None:
    publish_messages(last, ("t", b"x"))
    with UbrePeer(last.ports["ubre"]) as peer:
        peer.send_message(subscribe="t")
        peer.expect_message(publish="t", body="x")
        peer.send(ubre.frame("S", "t"))
        peer.flush()
        publish_messages(last, ("t", b"y"))
        peer.expect(ubre.frame("P", "t", b"y"))
        assert peer.read == b""


def test_unsubscribed_at_once(last: Broker) -> None:
    """A message in flight may still be delivered; none after it, and none twice."""
    publish_messages(last, ("t", b"x"))
    with UbrePeer(last.ports["ubre"]) as peer:
        for _ in range(20):
            peer.send_message(subscribe="t")
            peer.send_message(unsubscribe="t")
        peer.send_message(request="polycast/fence", id="fence")
        before = peer.read_until(b'"NotFound"}\n')
        assert before.count(b'"publish"') <= 20
        wait_for_total(last, "replays_open", 0)
        peer.flush()
        publish_messages(last, ("t", b"y"))
        peer.flush()
        peer.send_message(subscribe="t")
        peer.expect_message(publish="t", body="y")


def test_live_messages_follow_the_last_ones(last: Broker) -> None:
    """Subscribe and publish in one packet: each message once, in order; the newest is the last."""
    publish_messages(last, ("t", b"0"), ("u", b"0"))
    for turn in range(20):
        with UbrePeer(last.ports["ubre"]) as peer:
            mine = [ubre.line(publish="t", body=f"{letter}{turn}") for letter in "ab"]
            peer.send(ubre.line(subscribe="t") + mine[0] + ubre.line(subscribe="u") + mine[1])
            wait_until_subscribed(last, peer, 2)
            wait_for_total(last, "replays_open", 0)
            peer.send_message(request="polycast/fence", id=0)
            received = peer.read_until(b'"NotFound"}\n').splitlines(keepends=True)[:-1]
            assert received.count(ubre.line(publish="u", body="0")) == 1
            of_t = [line for line in received if b'"publish":"t"' in line]
            assert of_t[-2:] == mine and len(of_t) <= 3


def test_ten_thousand_topics(last: Broker) -> None:
    names = [f"topic/{number}" for number in range(10_000)]
    with last.connect("simplest") as peer:
        peer.send(b"".join(pub(name, b"old") + pub(name, name.encode()) for name in names))
        wait_for(lambda: total(last, "log_durable_offset") == 20_000, "all of it")
    wanted = b"".join(pub(name, name.encode()) for name in names)
    with SUBSCRIBERS["simplest"].open(last, "topic/", 0) as peer:
        peer.expect(wanted)
        publish_messages(last, ("topic/7", b"live"))
        peer.expect(pub("topic/7", b"live"))
    with last.connect("simplest") as peer:  # the same in separate packets
        peer.send(b"".join(b"sub topic/%d\n" % number for number in range(5000)))
        found: dict[str, bytes] = {}
        while len(found) < 10_000:
            more = peer.socket.recv(1 << 20)
            assert more
            pubs, peer.read = read_pubs(peer.read + more)
            found.update(pubs)
    with UbrePeer(last.ports["ubre"]) as ubre_peer:
        ubre_peer.send(b"".join(ubre.line(subscribe=name) for name in names))
        received = [ubre_peer.read_until(b"\n") for _ in names]
        assert len(set(received)) == len(received)
        wait_for_total(last, "replays_open", 0)
        ubre_peer.flush()


def test_a_publisher_gets_no_own_messages_without_echo(last: Broker) -> None:
    with SUBSCRIBERS["simplest"].open(last, "t", 0) as peer, last.connect("simplest") as other:
        peer.send(pub("t", b"mine"))
        wait_for(lambda: total(last, "log_durable_offset") == 1, "it to be durable")
        peer.send(b"unsub t\nsub t\n")
        other.send(pub("t", b"theirs"))
        peer.expect(pub("t", b"theirs"))
        wait_for_total(last, "replays_open", 0)
        assert peer.read == b""


def test_connection_names_of_an_earlier_run_are_not_excluded(tmp_path: Path) -> None:
    """All ipc connections have the same address, and the first connection of each run has the same number."""
    path = tmp_path / "simplest.sock"
    listen = f"--listen=simplest=ipc://{path}{LAST}"
    with Broker(listen, data=tmp_path, listen=("ubre", "http")) as broker, FilePeer(path) as peer:
        peer.send(pub("t", b"by the first connection"))
        wait_for(lambda: total(broker, "log_durable_offset") == 1, "it to be durable")
    with Broker(listen, data=tmp_path, listen=("ubre", "http")) as broker, FilePeer(path) as peer:
        peer.send(b"sub t\n")
        peer.expect(pub("t", b"by the first connection"))
        assert send_request(broker, "polycast/stats")["connections"] == 2


def test_hermod_can_choose_another_start(last: Broker) -> None:
    """Topics named in `from` start there; the others start with the last message."""
    publish_messages(last, ("a", b"0"), ("b", b"0"), ("a", b"1"), ("b", b"1"), ("a", b"2"))
    with last.connect("hermod.sub") as peer:
        peer.send(hermod.topics("a", "b", **{"from": {"a": 1}}))
        peer.expect(hermod.OK)
        received = read_messages(peer, 3)
        assert [each for each in received if each.topic == "a"] == [
            Delivered("a", 1, b"1"),
            Delivered("a", 2, b"2"),
        ]
        assert [each for each in received if each.topic == "b"] == [Delivered("b", 1, b"1")]
        wait_for_total(last, "replays_open", 0)
        hermod.expect_no_more(peer)
    with last.connect("hermod.sub") as peer:
        peer.send(handshake("a", since="earliest"))
        peer.expect(hermod.OK)
        assert [each.sequence for each in read_messages(peer, 3)] == [0, 1, 2]


@pytest.mark.parametrize(
    "flags",
    [
        ["--listen=simplest=tcp://127.0.0.1:0?replay=last"],
        ["--listen=simplest=tcp://127.0.0.1:0?policy=spill"],
        ["--set=limits.policy=spill"],
        ["--connect=nanomsg.pub=tcp://127.0.0.1:9?policy=spill"],
        ["--connect=nanomsg.pub=tcp://127.0.0.1:9?replay=last"],
    ],
    ids=" ".join,
)
def test_without_a_log(flags: list[str]) -> None:
    done = polycast_here("serve", "--no-log", *flags, "--check")
    assert done.code == 2
    assert "needs the log" in done.err and "hint: leave --no-log out" in done.err


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:0?replay=first", "replay=first: expected last"),
        ("tcp://127.0.0.1:0?policy=spil", "policy=spil: expected disconnect or drop or spill"),
        ("tcp://127.0.0.1:0?reply=last", "did you mean replay?"),
    ],
)
def test_wrong_options(address: str, words: str) -> None:
    done = polycast_here("serve", f"--listen=simplest={address}", "--check")
    assert done.code == 2
    assert words in done.err
