"""One message through a real broker, from one dialect to all of them."""

from __future__ import annotations

from bridge.tongues import TONGUES, Heard
from kit.broker import Broker
from kit.room import Room


def carry(broker: Broker, source: str, topic: str, payload: bytes) -> tuple[dict[str, Heard], dict[str, Heard]]:
    """What each dialect hears of a message, and what it should."""
    said = TONGUES[source].say(topic, payload)
    assert said is not None
    meant = TONGUES[source].meant(topic, payload)
    with Room(broker) as room:
        ears = {name: tongue.hear(room, meant.topic) for name, tongue in TONGUES.items()}
        mouth = TONGUES[source].publish(room)
        mouth.send(said)
        heard = {name: TONGUES[name].read(ear) for name, ear in ears.items()}
        for name, ear in ears.items():
            assert ear.read == b"", f"{name} heard more than one message"
    return heard, {name: tongue.heard(meant) for name, tongue in TONGUES.items()}
