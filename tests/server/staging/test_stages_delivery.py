"""Delivery of committed batches: every subscriber, all rows, in order, also with small queues."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.flow import KIB, Reading
from kit.frames import pub
from kit.hermod import OK, acknowledgement
from kit.links import free_port
from kit.replay import publish, read_messages, subscribe, total
from kit.staged import commit, numbered, stage, to_frame
from kit.subscribers import LISTEN, SUBSCRIBERS
from kit.wire import GUARD_SECONDS, Peer, wait_for

QUEUE_BYTES = 256 * KIB
SMALL_QUEUE = f"--set=limits.queue_bytes={QUEUE_BYTES}"
ROWS, SIZE = 6000, 1000
"""Many times what may be queued."""


@pytest.fixture(params=["live", "committed"])
def narrow(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    delivery = f"--set=log.delivery={request.param}"
    with Broker(SMALL_QUEUE, delivery, data=tmp_path, listen=LISTEN) as broker:
        yield broker


def test_a_large_commit_closes_no_connection(narrow: Broker) -> None:
    """One of each dialect that reads, and what is live before and behind it."""
    rows = numbered("flow", ROWS, SIZE)
    text = [b"before", *[payload for _, payload in rows] * 2, b"behind", b"later"]
    with ExitStack() as stack, narrow.connect("hermod.pub") as peer:
        readings = []
        for kind in SUBSCRIBERS.values():
            listener = stack.enter_context(kind.open(narrow, "flow", 0))
            expected = b"".join(kind.frame("flow", number, payload) for number, payload in enumerate(text))
            readings.append((Reading(listener, len(expected)), expected))
        stage(peer, "x", "s", rows)
        stage(peer, "y", "s", rows)
        before, behind = hermod.message("flow", b"before"), hermod.message("flow", b"behind")
        peer.send(before + hermod.commit("x", "s") + hermod.commit("y", "s") + behind)
        peer.expect(OK + hermod.ok(ROWS) * 2 + OK)
        publish(peer, [("flow", b"later")])
        for reading, expected in readings:
            assert reading.finish() == expected
    assert total(narrow, "subscribers_spilled_total") == 0


def test_commits_among_what_is_live(narrow: Broker) -> None:
    """All messages are in one order, for existing and for new subscribers."""
    commits, singles = 4, 300
    with (
        subscribe(narrow, "mixed") as subscriber,
        narrow.connect("hermod.pub") as one,
        narrow.connect("hermod.pub") as two,
        ExitStack() as stack,
    ):
        talking = threading.Thread(
            target=publish, args=(two, [("mixed", b"live %d" % number) for number in range(singles)]), daemon=True
        )
        frames = to_frame([("mixed", b"%d" % number + b"." * SIZE) for number in range(ROWS)])
        for number in range(commits):
            one.send(hermod.stage(f"{number}", "s", frames))
            one.expect(hermod.ok(ROWS))
        talking.start()
        late: list[Peer] = []
        for number in range(commits):
            commit(one, f"{number}", "s", rows=ROWS)
            late.append(stack.enter_context(subscribe(narrow, "mixed", since="earliest")))
        talking.join(GUARD_SECONDS)
        count = commits * ROWS + singles
        received = read_messages(subscriber, count)
        assert [each.sequence for each in received] == list(range(count))
        live = [each.payload for each in received if each.payload.startswith(b"live")]
        assert live == [b"live %d" % number for number in range(singles)]
        rest = [each.payload.rstrip(b".") for each in received if not each.payload.startswith(b"live")]
        assert rest == [b"%d" % number for number in range(ROWS)] * commits
        for other in late:
            assert read_messages(other, count) == received
        hermod.expect_no_more(subscriber)


def test_a_commit_is_not_torn_by_what_is_live(narrow: Broker) -> None:
    with narrow.connect("hermod.pub") as one, narrow.connect("hermod.pub") as two:
        for number in range(3):
            stage(one, f"{number}", "s", numbered("whole", ROWS, SIZE))
        talking = threading.Thread(target=publish, args=(two, [("whole", b"live")] * 500), daemon=True)
        talking.start()
        for number in range(3):
            commit(one, f"{number}", "s", rows=ROWS)
        talking.join(GUARD_SECONDS)
        with subscribe(narrow, "whole", since="earliest") as subscriber:
            found = [each.payload.rstrip(b".") for each in read_messages(subscriber, 3 * ROWS + 500)]
    begin = [place for place, payload in enumerate(found) if payload == b"0"]
    assert len(begin) == 3
    for place in begin:
        assert found[place : place + ROWS] == [b"%d" % number for number in range(ROWS)]


def test_a_window_paces_the_delivery(narrow: Broker) -> None:
    with narrow.connect("hermod.pub") as peer, subscribe(narrow, "paced", window=100) as subscriber:
        stage(peer, "x", "s", numbered("paced", 2000, SIZE))
        commit(peer, "x", "s", rows=2000)
        for first in range(0, 2000, 100):
            found = read_messages(subscriber, 100)
            assert [each.sequence for each in found] == list(range(first, first + 100))
            subscriber.send(acknowledgement("paced", first + 99))
        publish(peer, [("paced", b"live")])
        assert read_messages(subscriber, 1)[0].payload == b"live"


def test_other_subscribers_are_not_concerned(narrow: Broker) -> None:
    with narrow.connect("hermod.pub") as peer, subscribe(narrow, "else") as subscriber:
        stage(peer, "x", "s", numbered("here", ROWS, SIZE))
        commit(peer, "x", "s", rows=ROWS)
        publish(peer, [("else", b"1")])
        assert read_messages(subscriber, 1)[0].sequence == 0
        hermod.expect_no_more(subscriber)


def test_a_slow_one_is_still_closed(tmp_path: Path) -> None:
    """It is served from the log, but nobody waits for it for ever."""
    with (
        Broker(SMALL_QUEUE, "--set=limits.stall_seconds=0.2", data=tmp_path) as broker,
        broker.connect("hermod.pub") as peer,
        subscribe(broker, "slow", receive_bytes=4096),
    ):
        stage(peer, "x", "s", numbered("slow", ROWS, SIZE))
        commit(peer, "x", "s", rows=ROWS)
        broker.wait_for_log("limits.stall_seconds")


@pytest.mark.parametrize("forward", [False, True])
def test_over_links(tmp_path: Path, forward: bool) -> None:
    """A batch committed at one broker reaches a linked broker once."""
    flags = ("--forward",) if forward else ()
    port = free_port()
    with (
        Broker(f"--listen=simplest.peer=tcp://127.0.0.1:{port}", *flags, data=tmp_path / "one") as one,
        Broker(f"--peer=127.0.0.1:{port}", *flags, data=tmp_path / "two") as two,
        one.connect("hermod.pub") as peer,
        subscribe(one, "far") as here,
        two.connect("simplest") as there,
    ):
        there.send(b"sub far\n")

        def reached() -> bool:
            publish(peer, [("far", b"probe")])
            there.socket.setblocking(False)
            try:
                return bool(there.socket.recv(65536))
            except BlockingIOError:
                return False
            finally:
                there.socket.settimeout(GUARD_SECONDS)

        wait_for(reached, "the link")
        publish(peer, [("far", b"last probe")])
        there.read_until(b"last probe")
        there.read = b""
        stage(peer, "x", "s", numbered("far", ROWS, 500))
        commit(peer, "x", "s", rows=ROWS)
        publish(peer, [("far", b"the end")])
        expected = [pub("far", payload) for _, payload in numbered("far", ROWS, 500)]
        data = b"".join([*expected, pub("far", b"the end")])
        assert Reading(there, len(data)).finish() == data
        received = read_messages(here, 1)
        while received[-1].payload != b"the end":
            received += read_messages(here, 1)
        assert [each.sequence for each in received] == list(range(len(received)))
        hermod.expect_no_more(here)
