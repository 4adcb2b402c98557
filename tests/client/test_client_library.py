"""The clients of simplest and fanout, and clients of different dialects together."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from client.scripted import Scripted
from client.shells import KINDS, Shell, place, take
from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from polycast.client.connect import to_client_session
from polycast.errors import RemoteError, UsageError
from polycast.model import Everything, Exact, Message, Prefix


def dial(kind: str, broker: Broker, dialect: str, publishing: bool = False) -> Shell:
    return KINDS[kind](dialect, place(broker, dialect, publishing), publishing)


def flush(room: Room) -> None:
    """What was sent before has been read once the broker has gone round twice."""
    for _ in range(2):
        room.simplest()


@pytest.mark.parametrize("dialect", ["simplest", "ubre"])
def test_one_connection_publishes_and_subscribes(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    peer = room.simplest(b"sub question\n")
    with dial(kind, broker, dialect) as client:
        client.subscribe([Exact("answer")])
        client.publish([Message("question", b"6 x 7")])
        peer.expect(pub("question", b"6 x 7"))
        room.send_commands(peer, pub("answer", b"42"))
        [received] = take(client, 1)
    assert (received.topic, received.payload) == ("answer", b"42")


def test_two_clients_of_different_dialects(broker: Broker, room: Room, kind: str) -> None:
    with dial(kind, broker, "fanout") as subscriber:
        subscriber.subscribe([Prefix("chat.")])
        for dialect in ("simplest", "hermod", "fanout", "nanomsg", "ubre"):
            with dial(kind, broker, dialect, publishing=True) as publisher:
                publisher.publish([Message(f"chat.{dialect}", b"two words")])
            assert take(subscriber, 1) == [Message(f"chat.{dialect}", b"two words")]


def test_names_that_had_to_be_escaped_still_match(broker: Broker, room: Room, kind: str) -> None:
    with dial(kind, broker, "fanout") as client:
        client.subscribe([Exact("a!b")])
        room.simplest(pub("a!c", b"no") + pub("a!b", b"yes"))
        assert take(client, 1) == [Message("a%21b", b"yes")]


def test_a_topic_that_simplest_cannot_subscribe_to(broker: Broker, kind: str) -> None:
    with dial(kind, broker, "simplest") as client, pytest.raises(UsageError, match="line break"):
        client.subscribe([Exact("a\nb")])


def test_invalid_input_from_a_broker_is_an_error(kind: str) -> None:
    def talk_nonsense(connection: socket.socket) -> None:
        connection.sendall(b"pub x y z\n")
        connection.recv(65536)

    with (
        Scripted(talk_nonsense) as at,
        pytest.raises(RemoteError, match=f"{at}: cannot read"),
        KINDS[kind]("simplest", at) as client,
    ):
        client.subscribe([Everything()])
        list(client.messages())


def test_messages_before_invalid_input_are_delivered(kind: str) -> None:
    def begin_well(connection: socket.socket) -> None:
        connection.sendall(pub("x", b"fine") + b"pub x 1 too long\n")
        connection.recv(65536)

    received: list[Message] = []
    with Scripted(begin_well) as at, pytest.raises(RemoteError), KINDS[kind]("simplest", at) as client:
        client.subscribe([Everything()])
        for messages in client.messages():
            received += messages
    assert received == [Message("x", b"fine")]


def test_messages_without_a_subscription_are_dropped(broker: Broker, room: Room, kind: str) -> None:
    """A fanout client receives `all` without a subscription."""
    with dial(kind, broker, "fanout") as client:
        room.send_as_controller(room.controller(), b"all hello\n")
        client.subscribe([Exact("x")])
        room.send_as_controller(room.controller(), b"x asked for\n")
        assert take(client, 1) == [Message("x", b"asked for")]


@pytest.mark.parametrize("dialect", ["simplest", "fanout", "nanomsg"])
def test_lost_messages_are_reported(kind: str, dialect: str) -> None:
    """Nothing is acknowledged here, but a connection that breaks is noticed."""

    def break_off(connection: socket.socket) -> None:
        if dialect == "nanomsg":
            connection.sendall(b"\0SP\0\0\x21\0\0")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with (
        Scripted(break_off) as at,
        pytest.raises(RemoteError, match="some messages may be lost"),
        KINDS[kind](dialect, at, True) as client,
    ):
        client.publish(Message("x", b"y" * 50_000) for _ in range(1000))


def test_a_subscription_to_nothing_receives_nothing(kind: str) -> None:
    with Broker() as broker, Room(broker) as room, dial(kind, broker, "fanout") as client:
        flush(room)
        room.send_as_controller(room.controller(), b"all hello\n")
        broker.stop()
        assert list(client.messages()) == []


def test_a_token_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("from-the-file\n")
    monkeypatch.setenv("POLYCAST_TOKEN_FILE", str(file))
    assert to_client_session("ubre", "tcp://here:1").credentials.token == "from-the-file"
    assert to_client_session("ubre", "tcp://here:1?token=given").credentials.token == "given"
    monkeypatch.setenv("POLYCAST_TOKEN", "set")
    assert to_client_session("ubre", "tcp://here:1").credentials.token == "set"
    monkeypatch.delenv("POLYCAST_TOKEN")
    file.unlink()
    with pytest.raises(UsageError, match=f"cannot read the token in {file}: No such file"):
        to_client_session("ubre", "tcp://here:1")
