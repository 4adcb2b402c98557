"""What holds for the clients of all dialects, blocking and asyncio."""

from __future__ import annotations

import gc
import socket
import warnings
from pathlib import Path
from typing import Any, cast

import pytest

from client.scripted import Scripted
from client.shells import KINDS, Shell, place, take
from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from polycast.client import DIALECTS, connect, to_client_session
from polycast.errors import RemoteError, UsageError
from polycast.model import Contains, Everything, Exact, Message, Pattern, Prefix, StartPosition

PAYLOADS = [b"", b"x", b"a|b {} \x00!", "größer".encode(), bytes(range(11, 256)), b"y" * 60_000]
"""Such as all dialects can carry."""
BY_PATTERN = ("simplest", "hermod", "fanout", "nanomsg")
BY_TOPIC = ("ubre",)
TELLING = ("hermod", "ubre")
REPLAYING = ("hermod",)
ASKING = ("hermod", "ubre")

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def dial(kind: str, broker: Broker, dialect: str, publishing: bool = False) -> Shell:
    return KINDS[kind](dialect, place(broker, dialect, publishing), publishing)


def flush(room: Room) -> None:
    """What was sent before has been read once the broker has gone round twice."""
    for _ in range(2):
        room.simplest()


# -- what they do ----------------------------------------------------------------------------------------


@every_dialect
def test_the_end_of_the_block_waits_until_publications_are_read(
    broker: Broker, room: Room, kind: str, dialect: str
) -> None:
    subscriber = room.simplest(b"sub topic\n")
    with dial(kind, broker, dialect, publishing=True) as client:
        client.publish(Message("topic", payload) for payload in PAYLOADS)
    assert room.received_by(subscriber) == b"".join(pub("topic", payload) for payload in PAYLOADS)


@pytest.mark.parametrize("dialect", TELLING)
def test_publish_returns_after_the_read_where_the_dialect_confirms_it(
    broker: Broker, room: Room, kind: str, dialect: str
) -> None:
    subscriber = room.simplest(b"sub topic\n")
    with dial(kind, broker, dialect, publishing=True) as client:
        for payload in PAYLOADS:
            client.publish([Message("topic", payload)])
            assert room.received_by(subscriber) == pub("topic", payload)


@every_dialect
def test_a_subscriber_gets_bytes_as_they_were(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as client:
        client.subscribe([Exact("topic")])
        flush(room)
        room.simplest(b"".join(pub("topic", payload) for payload in PAYLOADS) + pub("topical", b"no"))
        received = take(client, len(PAYLOADS))
    assert [(message.topic, message.payload) for message in received] == [
        ("topic", payload) for payload in PAYLOADS
    ]


@every_dialect
def test_many_messages_come_in_their_order(broker: Broker, kind: str, dialect: str) -> None:
    payloads = [b"%d" % number * 20 for number in range(20_000)]
    with dial(kind, broker, dialect) as subscriber, Room(broker) as room:
        subscriber.subscribe([Exact("many")])
        flush(room)
        with dial(kind, broker, dialect, publishing=True) as publisher:
            publisher.publish(Message("many", payload) for payload in payloads)
        assert [message.payload for message in take(subscriber, len(payloads))] == payloads


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "fanout"])
def test_a_large_message_goes_both_ways(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    large = bytes(range(256)) * 3_600
    with dial(kind, broker, dialect) as subscriber, dial(kind, broker, dialect, publishing=True) as publisher:
        subscriber.subscribe([Exact("large")])
        flush(room)
        publisher.publish([Message("large", large)])
        assert [message.payload for message in take(subscriber, 1)] == [large]


@every_dialect
def test_a_client_can_close_with_unread_messages(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as client:
        client.subscribe([Exact("x")])
        flush(room)
        room.simplest(pub("x", b"y" * 50_000) * 100)


@pytest.mark.parametrize("dialect", BY_PATTERN)
def test_patterns(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    text = ["a", "a.b", "a.b.c", "b", "xax", "ab"]
    patterns: dict[Pattern, list[str]] = {
        Exact("a"): ["a"], Prefix("a."): ["a.b", "a.b.c"], Prefix("a"): ["a", "a.b", "a.b.c", "ab"],
        Contains("b"): ["a.b", "a.b.c", "b", "ab"], Everything(): text,
    }  # fmt: skip
    for pattern, received in patterns.items():
        with dial(kind, broker, dialect) as client:
            client.subscribe([pattern])
            flush(room)
            room.simplest(b"".join(pub(name) for name in text))
            assert [message.topic for message in take(client, len(received))] == received, pattern


@pytest.mark.parametrize("dialect", BY_TOPIC)
@pytest.mark.parametrize("pattern", [Prefix("a."), Contains("b"), Everything()])
def test_a_dialect_without_patterns_names_those_with(
    broker: Broker, kind: str, dialect: str, pattern: Pattern
) -> None:
    with dial(kind, broker, dialect) as client:
        with pytest.raises(UsageError, match="only to whole topics") as caught:
            client.subscribe([Exact("fine"), pattern])
        assert all(name in caught.value.hint for name in BY_PATTERN)
        assert "--" not in caught.value.hint


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name not in REPLAYING])
def test_a_dialect_without_replay_names_those_with(broker: Broker, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as client:
        with pytest.raises(UsageError, match="cannot read from the log") as caught:
            client.subscribe([Exact("a")], StartPosition())
        assert all(name in caught.value.hint for name in REPLAYING)
    with dial(kind, broker, dialect, publishing=True) as client:
        with pytest.raises(UsageError, match="no batches with an id") as caught:
            client.publish_once([Message("a", b"x")], "id")
        assert all(name in caught.value.hint for name in REPLAYING)


@every_dialect
def test_subscriptions_add_up(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as client:
        client.subscribe([Exact("a")])
        client.subscribe([Exact("b"), Exact("d")])
        flush(room)
        room.simplest(pub("a") + pub("c") + pub("b") + pub("d"))
        assert [message.topic for message in take(client, 3)] == ["a", "b", "d"]


# -- what they cannot do ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["hermod", "fanout", "nanomsg"])
def test_a_one_way_connection_refuses_the_other_direction(broker: Broker, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as subscriber, pytest.raises(UsageError, match="subscribes"):
        subscriber.publish([Message("x", b"")])
    with dial(kind, broker, dialect, publishing=True) as publisher, pytest.raises(UsageError, match="publishes"):
        publisher.subscribe([Exact("x")])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_which_dialects_can_request_and_serve(broker: Broker, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as client:
        if dialect in ASKING:
            assert client.request("nobody/serves/this").value == "NotFound"
        else:
            with pytest.raises(UsageError, match="has no requests"):
                client.request("polycast/topics")
        if dialect != "ubre":
            with pytest.raises(UsageError, match="cannot serve routes"):
                client.serve("route", lambda body: body)


@pytest.mark.parametrize(
    ("dialect", "message"),
    [
        ("simplest", Message("", b"x")),
        ("simplest", Message("a b", b"x")),
        ("simplest", Message("a\nb", b"x")),
        ("fanout", Message("", b"x")),
        ("fanout", Message("a b", b"x")),
        ("fanout", Message("a!b", b"x")),
        ("fanout", Message("a", b"x\ny")),
        ("fanout", Message("a", b"x\r")),
        ("nanomsg", Message("a|b", b"x")),
        ("nanomsg", Message("", b"x|y")),
        ("nanomsg", Message("n" * 1025, b"x")),
        ("ubre", Message("n" * 65_536, b"x")),
        *((dialect, Message("\udcff", b"x")) for dialect in DIALECTS),
    ],
)
def test_a_message_that_a_dialect_cannot_carry_is_refused_before_it_is_sent(
    broker: Broker, room: Room, kind: str, dialect: str, message: Message
) -> None:
    subscriber = room.simplest(b"sub \n")
    with (
        pytest.raises(UsageError, match=r"carr(y|ies)|cannot be a topic"),
        dial(kind, broker, dialect, publishing=True) as client,
    ):
        client.publish([message])
    room.expect_quiet(subscriber)


@every_dialect
def test_a_pattern_that_is_not_utf8(broker: Broker, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as client, pytest.raises(UsageError, match="not UTF-8"):
        client.subscribe([Exact("\udcff")])


@every_dialect
def test_a_pattern_that_is_longer_than_any_topic(broker: Broker, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect) as client, pytest.raises(UsageError, match="at most"):
        client.subscribe([Exact("n" * 70_000)])


@every_dialect
@pytest.mark.parametrize("patterns", ["t", "", ["t"], [b"t"], Exact("t"), Everything()])
def test_patterns_that_are_none(broker: Broker, kind: str, dialect: str, patterns: Any) -> None:
    with dial(kind, broker, dialect) as client, pytest.raises(UsageError, match="list of patterns") as caught:
        client.subscribe(patterns)
    assert "parse_pattern" in caught.value.hint


@every_dialect
def test_one_message_is_no_list_of_messages(broker: Broker, kind: str, dialect: str) -> None:
    with dial(kind, broker, dialect, True) as client, pytest.raises(UsageError, match="list of messages"):
        client.publish(cast(Any, Message("x", b"y")))


@pytest.mark.parametrize("timeout", [float("nan"), -1.0])
def test_a_timeout_that_is_none(broker: Broker, kind: str, timeout: float) -> None:
    with pytest.raises(UsageError, match="seconds is no timeout"):
        KINDS[kind]("simplest", place(broker, "simplest"), timeout=timeout)
    with dial(kind, broker, "ubre") as client, pytest.raises(UsageError, match="seconds is no timeout"):
        client.request("polycast/topics", timeout=timeout)


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_a_timeout_for_ever(broker: Broker, kind: str, timeout: float) -> None:
    with KINDS[kind]("ubre", place(broker, "ubre"), timeout=timeout) as client:
        assert client.request("polycast/topics", timeout=timeout).success


# -- how they end ----------------------------------------------------------------------------------------


@every_dialect
def test_the_messages_end_when_the_broker_does(kind: str, dialect: str) -> None:
    with Broker(listen=(DIALECTS[dialect].subscribers,)) as broker, dial(kind, broker, dialect) as client:
        client.subscribe([Exact("x")])
        broker.stop()
        assert list(client.messages()) == []


@every_dialect
@pytest.mark.parametrize("publishing", [False, True])
def test_no_peer(kind: str, dialect: str, publishing: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(RemoteError, match="cannot reach") as caught:
        KINDS[kind](dialect, f"127.0.0.1:{port}", publishing)
    assert "polycast serve" in caught.value.hint
    assert "--" not in caught.value.hint


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_a_connection_that_failed_leaves_nothing_open(kind: str, scheme: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}" if scheme == "tcp" else f"ipc://{tmp_path}/none"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RemoteError):
            KINDS[kind]("simplest", address)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


WRONG_PORTS = [
    ("simplest", True, "fanout.client"),
    ("simplest", True, "hermod.pub"),
    ("simplest", True, "nanomsg.sub"),
    ("simplest", True, "http"),
    ("hermod", True, "simplest"),
    ("hermod", True, "fanout.client"),
    ("hermod", True, "fanout.controller"),
    ("hermod", False, "nanomsg.pub"),
    ("hermod", False, "fanout.controller"),
    ("fanout", True, "fanout.client"),
    ("fanout", True, "nanomsg.pub"),
    ("fanout", False, "fanout.controller"),
    ("fanout", False, "http"),
    ("nanomsg", True, "nanomsg.pub"),
    ("nanomsg", False, "nanomsg.sub"),
    ("nanomsg", False, "hermod.sub"),
    ("nanomsg", False, "simplest"),
    ("ubre", False, "simplest"),
    ("ubre", False, "hermod.sub"),
    ("ubre", False, "nanomsg.pub"),
]


@pytest.mark.parametrize(("dialect", "publishing", "listener"), WRONG_PORTS)
def test_a_wrong_port_is_an_error_with_a_hint_and_publishes_nothing(
    broker: Broker, room: Room, kind: str, dialect: str, publishing: bool, listener: str
) -> None:
    subscriber = room.simplest(b"sub \n")
    at = f"tcp://127.0.0.1:{broker.ports[listener]}"
    with (
        pytest.raises(RemoteError) as caught,
        KINDS[kind](dialect, at, publishing, timeout=0.2) as client,
    ):
        if publishing:
            client.publish([Message("x", b"y")])
        else:
            client.subscribe([Exact("x")])
    assert at in str(caught.value)
    assert f"is that the address for {dialect}" in caught.value.hint
    room.expect_quiet(subscriber)


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "simplest"])  # which has no handshake
def test_a_broker_that_hangs_up_on_the_handshake(kind: str, dialect: str) -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with (
        Scripted(hang_up) as at,
        pytest.raises(RemoteError, match="closed the connection"),
        KINDS[kind](dialect, at) as client,
    ):
        client.subscribe([Exact("x")])


def test_an_unknown_dialect() -> None:
    with pytest.raises(UsageError, match="smoke") as caught:
        connect("smoke")
    assert all(name in caught.value.hint for name in DIALECTS)


# -- addresses -------------------------------------------------------------------------------------------


@every_dialect
def test_ipc(kind: str, dialect: str, tmp_path: Path) -> None:
    chosen = DIALECTS[dialect]
    inner = {name: f"ipc://{tmp_path}/{name}" for name in (chosen.publishers, chosen.subscribers)}
    listeners = [f"--listen={name}={address}" for name, address in inner.items()]
    with (
        Broker(*listeners) as broker,
        Room(broker) as room,
        KINDS[kind](dialect, inner[chosen.subscribers]) as client,
    ):
        client.subscribe([Exact("x")])
        flush(room)
        with KINDS[kind](dialect, inner[chosen.publishers], True) as publisher:
            publisher.publish([Message("x", b"hello")])
        [received] = take(client, 1)
    assert (received.topic, received.payload) == ("x", b"hello")


@pytest.mark.parametrize("dialect", ["simplest", "hermod", "fanout"])
def test_a_scheme_that_a_dialect_does_not_travel_by(dialect: str) -> None:
    with pytest.raises(UsageError, match="cannot use ws addresses") as caught:
        connect(dialect, "ws://127.0.0.1:8080/")
    assert "tcp" in caught.value.hint


def test_a_host_alone_stands_for_the_default_port_there() -> None:
    """No broker of a test is at a default port, and whoever is at one now does not matter here."""
    with pytest.raises(RemoteError) as caught:
        connect("hermod", "host.invalid", publishing=True)
    assert "tcp://host.invalid:7878" in str(caught.value)
    with pytest.raises(RemoteError) as caught:
        connect("hermod", "host.invalid")
    assert "tcp://host.invalid:8787" in str(caught.value)


@pytest.mark.parametrize("host", ["::1", "[::1]", "::ffff:127.0.0.1"])
def test_a_host_may_be_an_ipv6_address(host: str) -> None:
    address = to_client_session("hermod", host).address
    assert str(address) == f"tcp://[{host.strip('[]')}]:8787"


def test_ipv6(kind: str) -> None:
    try:
        running = Broker("--listen=simplest=tcp://[::1]:0", listen=()).__enter__()
    except AssertionError as error:
        pytest.skip(f"no IPv6 here: {error}")
    try:
        [(_, place)] = running.addresses
        with KINDS[kind]("simplest", place) as client:
            client.publish([Message("x", b"y")])
    finally:
        running.stop()
