"""The client library, used without the command line."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from pathlib import Path

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from kit.wire import GUARD_SECONDS
from polycast.client import Client, connect
from polycast.errors import PeerError, RemoteError, UsageError
from polycast.model import Contains, Everything, Exact, Message, Pattern, Prefix

PAYLOADS = [b"", b"x", bytes(range(256)), b"\n\n", b"y" * 300_000]


def dial(broker: Broker, dialect: str, publishing: bool = False) -> Client:
    listener = dialect if dialect == "simplest" else "fanout.controller" if publishing else "fanout.client"
    return connect(dialect, f"tcp://127.0.0.1:{broker.ports[listener]}", publishing)


def take(client: Client, count: int) -> list[Message]:
    taken: list[Message] = []
    for messages in client.messages():
        taken += messages
        if len(taken) >= count:
            break
    return taken


def test_what_is_published_has_been_read_when_the_block_ends(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub topic\n")
    with dial(broker, "simplest", publishing=True) as client:
        client.publish(Message("topic", payload) for payload in PAYLOADS)
    room.simplest()
    assert room.heard_by(subscriber) == b"".join(pub("topic", payload) for payload in PAYLOADS)


def test_a_subscriber_gets_bytes_as_they_were(broker: Broker, room: Room) -> None:
    with dial(broker, "simplest") as client:
        client.subscribe([Exact("topic")])
        settle(room)
        room.simplest(b"".join(pub("topic", payload) for payload in PAYLOADS) + pub("topical", b"no"))
        assert take(client, len(PAYLOADS)) == [Message("topic", payload) for payload in PAYLOADS]


def settle(room: Room) -> None:
    """What was sent before has been read once the broker has gone round twice."""
    for _ in range(2):
        room.simplest()


@pytest.mark.parametrize("dialect", ["simplest", "fanout"])
def test_patterns(broker: Broker, room: Room, dialect: str) -> None:
    said = ["a", "a.b", "a.b.c", "b", "xax", "ab"]
    patterns: dict[Pattern, list[str]] = {
        Exact("a"): ["a"], Prefix("a."): ["a.b", "a.b.c"], Prefix("a"): ["a", "a.b", "a.b.c", "ab"],
        Contains("b"): ["a.b", "a.b.c", "b", "ab"], Everything(): said,
    }  # fmt: skip
    for pattern, heard in patterns.items():
        with dial(broker, dialect) as client:
            client.subscribe([pattern])
            settle(room)
            room.simplest(b"".join(pub(name) for name in said))
            assert [message.topic for message in take(client, len(heard))] == heard, pattern


def test_subscriptions_add_up(broker: Broker, room: Room) -> None:
    with dial(broker, "simplest") as client:
        client.subscribe([Exact("a")])
        client.subscribe([Exact("b")])
        settle(room)
        room.simplest(pub("a") + pub("c") + pub("b"))
        assert [message.topic for message in take(client, 2)] == ["a", "b"]


def test_one_connection_publishes_and_subscribes(broker: Broker, room: Room) -> None:
    peer = room.simplest(b"sub question\n")
    with dial(broker, "simplest") as client:
        client.subscribe([Exact("answer")])
        client.publish([Message("question", b"6 x 7")])
        peer.expect(pub("question", b"6 x 7"))
        room.say(peer, pub("answer", b"42"))
        assert take(client, 1) == [Message("answer", b"42")]


def test_two_clients_of_different_dialects(broker: Broker, room: Room) -> None:
    with dial(broker, "fanout") as subscriber:
        subscriber.subscribe([Prefix("chat.")])
        settle(room)
        with (
            dial(broker, "simplest", publishing=True) as simplest,
            dial(broker, "fanout", publishing=True) as fanout,
        ):
            simplest.publish([Message("chat.a", b"one")])
            assert take(subscriber, 1) == [Message("chat.a", b"one")]
            fanout.publish([Message("chat.b", b"two words")])
            assert take(subscriber, 1) == [Message("chat.b", b"two words")]


def test_names_that_had_to_be_escaped_still_match(broker: Broker, room: Room) -> None:
    with dial(broker, "fanout") as client:
        client.subscribe([Exact("a!b")])
        settle(room)
        room.simplest(pub("a!c", b"no") + pub("a!b", b"yes"))
        assert take(client, 1) == [Message("a%21b", b"yes")]


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
    ],
)
def test_what_a_dialect_cannot_carry_is_refused_before_it_is_sent(
    broker: Broker, room: Room, dialect: str, message: Message
) -> None:
    subscriber = room.simplest(b"sub \n")
    with pytest.raises(UsageError, match="cannot carry"), dial(broker, dialect, publishing=True) as client:
        client.publish([message])
    room.expect_quiet(subscriber)


def test_an_unknown_dialect() -> None:
    with pytest.raises(UsageError, match="smoke") as caught:
        connect("smoke")
    assert "simplest" in caught.value.hint


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(RemoteError, match="cannot reach") as caught:
        connect("simplest", f"127.0.0.1:{port}")
    assert "polycast serve" in caught.value.hint


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_a_connection_that_failed_leaves_nothing_open(kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}" if kind == "tcp" else f"ipc://{tmp_path}/none"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RemoteError):
            connect("simplest", address)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_ipc(tmp_path: Path) -> None:
    place = f"ipc://{tmp_path}/sock"
    listeners = (f"--listen=simplest={place}", f"--listen=fanout.client={place}.f")
    with Broker(*listeners, listen=()), connect("fanout", f"{place}.f") as subscriber:
        subscriber.subscribe([Exact("x")])
        heard = threading.Event()
        talk = threading.Thread(target=say_until, args=(place, heard), daemon=True)
        talk.start()
        assert take(subscriber, 1)[0] == Message("x", b"hello")
        heard.set()
        talk.join(GUARD_SECONDS)


def say_until(place: str, heard: threading.Event) -> None:
    while not heard.wait(0.01):
        with connect("simplest", place, publishing=True) as publisher:
            publisher.publish([Message("x", b"hello")])


def test_the_messages_end_when_the_broker_does() -> None:
    with Broker(listen=("simplest",)) as broker, dial(broker, "simplest") as client:
        client.subscribe([Everything()])
        broker.stop()
        assert list(client.messages()) == []


def test_a_broker_that_says_nonsense_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        error = pytest.raises(PeerError, match="cannot read")
        with error, connect("simplest", address) as client, server.accept()[0] as broken:
            client.subscribe([Everything()])
            broken.sendall(b"pub x y z\n")
            list(client.messages())


def test_messages_that_come_unasked_are_left_out(broker: Broker, room: Room) -> None:
    """A fanout client hears `all` without asking for it."""
    with dial(broker, "fanout") as client:
        settle(room)
        room.tell(room.controller(), b"all hello\n")
        client.subscribe([Exact("x")])
        settle(room)
        room.tell(room.controller(), b"x asked for\n")
        assert take(client, 1) == [Message("x", b"asked for")]


def test_who_subscribed_to_nothing_gets_nothing_and_no_error() -> None:
    with Broker() as broker, Room(broker) as room, dial(broker, "fanout") as client:
        settle(room)
        room.tell(room.controller(), b"all hello\n")
        broker.stop()
        assert list(client.messages()) == []
