"""What users hand to a client: payloads as text, wrong types, and the names to import."""

from __future__ import annotations

from typing import Any

import pytest

import polycast.client
import polycast.model
from client.shells import KINDS, place, take
from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from polycast.client import DIALECTS, Body, connect, to_client_session
from polycast.errors import UsageError
from polycast.model import Exact, Format, Message

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@every_dialect
def test_text_is_published_in_every_dialect(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    subscriber = room.simplest(b"sub topic\n")
    with KINDS[kind](dialect, place(broker, dialect, True), True) as client:
        client.publish([Message("topic", "größer"), Message("topic", '{"a":1}', Format.JSON)])
    assert room.received_by(subscriber) == pub("topic", "größer".encode()) + pub("topic", b'{"a":1}')


@every_dialect
def test_text_arrives_in_every_dialect(broker: Broker, room: Room, kind: str, dialect: str) -> None:
    with KINDS[kind](dialect, place(broker, dialect, False)) as client:
        client.subscribe([Exact("topic")])
        for _ in range(2):
            room.simplest()
        with connect("hermod", place(broker, "hermod", True), publishing=True) as publisher:
            publisher.publish([Message("topic", "größer")])
        [message] = take(client, 1)
    assert message.payload == "größer".encode()


@every_dialect
@pytest.mark.parametrize("topic", [b"topic", None, 5])
def test_a_topic_is_text_in_every_dialect(dialect: str, topic: Any) -> None:
    session = to_client_session(dialect, publishing=True)
    with pytest.raises(UsageError, match=f"a topic or a batch id is text, not {type(topic).__name__}"):
        session.encode(Message(topic, b"x"))


def test_bodies_come_from_the_client_package() -> None:
    """As the guide has it, beside the functions that take and return them."""
    assert Body is polycast.model.Body
    assert {"Body", "Response", "to_body", "connect", "connect_async"} <= set(polycast.client.__all__)
