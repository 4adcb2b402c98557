"""One message through a real broker, from one dialect to all of them."""

from __future__ import annotations

from bridge.dialect_cases import CASES, Arrived
from kit.broker import Broker
from kit.room import Room


def carry(
    broker: Broker, source: str, topic: str, payload: bytes
) -> tuple[dict[str, Arrived], dict[str, Arrived]]:
    """What arrives of a message in each dialect, and what should."""
    data = CASES[source].encode(topic, payload)
    assert data is not None
    message = CASES[source].to_message(topic, payload)
    with Room(broker) as room:
        subscribers = {name: case.subscribe(room, message.topic) for name, case in CASES.items()}
        publisher = CASES[source].publish(room)
        publisher.send(data)
        arrived = {name: CASES[name].read(subscriber) for name, subscriber in subscribers.items()}
        for name, subscriber in subscribers.items():
            assert subscriber.read == b"", f"{name} received more than one message"
    return arrived, {name: case.expected(message) for name, case in CASES.items()}
