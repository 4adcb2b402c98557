"""Wires: what the driver must know of each protocol to load it and to count what comes back.

A wire turns topics and payloads into bytes ahead of time, and says byte for byte what a subscriber is owed
for each message; nothing is parsed while the clock runs. A new protocol is one class in here and one line in
`WIRES`.

Subscriptions are acknowledged differently or not at all, so the driver does not look: it probes (see
`proof`).
"""

from polycast.bench.wires.base import Greeting, Wire
from polycast.bench.wires.dialects import Fanout, Hermod, Nanomsg, Simplest, Ubre
from polycast.bench.wires.peers import Mqtt, Nats, Resp

WIRES: dict[str, Wire] = {
    "simplest": Simplest(),
    "ubre": Ubre(),
    "hermod": Hermod(),
    "nanomsg": Nanomsg(),
    "fanout": Fanout(),
    "nats": Nats(),
    "resp": Resp(),
    "mqtt": Mqtt(),
}

DIALECTS = tuple(name for name, wire in WIRES.items() if wire.listeners)
"""The wires that are Polycast's own."""

__all__ = ["DIALECTS", "WIRES", "Greeting", "Wire"]
