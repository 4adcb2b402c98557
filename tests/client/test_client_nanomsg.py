"""What a SUB and a PUB socket can and cannot do, over tcp and over WebSocket."""

from __future__ import annotations

import pytest

from client.shells import KINDS, Shell, place, take
from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Exact, Message, Prefix

PAYLOADS = [b"", b"x", b"a|b", bytes(range(256)), b"y" * 300_000]

both_ways = pytest.mark.parametrize("scheme", ["tcp", "ws"])


def dial(kind: str, broker: Broker, scheme: str, publishing: bool = False) -> Shell:
    web = f"ws://127.0.0.1:{broker.ports['http']}/anywhere"
    return KINDS[kind]("nanomsg", web if scheme == "ws" else place(broker, "nanomsg", publishing), publishing)


def flush(room: Room) -> None:
    for _ in range(2):
        room.simplest()


@both_ways
def test_publishing(broker: Broker, room: Room, kind: str, scheme: str) -> None:
    subscriber = room.simplest(b"sub topic\n")
    with dial(kind, broker, scheme, publishing=True) as client:
        client.publish(Message("topic", payload) for payload in PAYLOADS)
    assert room.received_by(subscriber) == b"".join(pub("topic", payload) for payload in PAYLOADS)


@both_ways
def test_subscribing(broker: Broker, room: Room, kind: str, scheme: str) -> None:
    with dial(kind, broker, scheme) as client:
        client.subscribe([Prefix("to")])
        flush(room)
        room.simplest(pub("other", b"no") + b"".join(pub("topic", payload) for payload in PAYLOADS))
        assert take(client, len(PAYLOADS)) == [Message("topic", payload) for payload in PAYLOADS]


@both_ways
def test_a_message_without_a_topic(broker: Broker, room: Room, kind: str, scheme: str) -> None:
    messages = [Message("", b"no separator"), Message("", b"|leads"), Message("", b"")]
    with dial(kind, broker, scheme) as client, dial(kind, broker, scheme, publishing=True) as publisher:
        client.subscribe([Exact("")])
        flush(room)
        publisher.publish(messages)
        assert take(client, 3) == messages


@pytest.mark.parametrize("topic", ["polycast/events/x", "polycast/"])
def test_sub_sockets_cannot_subscribe_to_reserved_topics(broker: Broker, kind: str, topic: str) -> None:
    with (
        dial(kind, broker, "tcp") as client,
        pytest.raises(UsageError, match="cannot subscribe") as caught,
    ):
        client.subscribe([Exact(topic)])
    assert "hermod" in caught.value.hint


def test_over_websocket_a_refusal_comes_with_its_reason(kind: str) -> None:
    with (
        Broker("--set=nanomsg.message_bytes=1000", listen=("http",)) as broker,
        pytest.raises(RefusedError, match="exceeds the limit of 1,000") as caught,
        dial(kind, broker, "ws", publishing=True) as client,
    ):
        client.publish([Message("large", b"x" * 2000)])
    assert caught.value.code == 1009


def test_a_web_server_that_speaks_something_else(broker: Broker, kind: str) -> None:
    with pytest.raises(RemoteError, match="not the start of nanomsg"):
        KINDS[kind]("nanomsg", f"tcp://127.0.0.1:{broker.ports['http']}")
