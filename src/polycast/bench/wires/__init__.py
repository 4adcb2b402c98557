"""Wire formats: the packets of each protocol, as far as the driver needs them.

A wire format encodes publications ahead of time, and gives the exact bytes of each delivery; the driver parses
nothing while the clock runs. A new protocol is one class and one line in `WIRES`.

Protocols acknowledge subscriptions differently or not at all. The driver ignores these replies and sends probes
(see `preflight`).
"""

from polycast.bench.wires.dialect_formats import Fanout, Hermod, Nanomsg, Simplest, Ubre
from polycast.bench.wires.peer_formats import Mqtt, Nats, Resp
from polycast.bench.wires.wire_format import Handshake, WireFormat

WIRES: dict[str, WireFormat] = {
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
"""The wire formats of Polycast's dialects."""

__all__ = ["DIALECTS", "WIRES", "Handshake", "WireFormat"]
