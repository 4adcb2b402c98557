"""What is counted, declared as data: name, unit, meaning. One set for each listener."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from polycast.declare import counter


@dataclass(slots=True)
class Counters:
    accepted: int = counter("connections", "connections that were opened")
    turned_away: int = counter("connections", "connections closed at once: over limits.connections")
    open: int = counter("connections", "connections open now", kind="gauge")
    messages_in: int = counter("messages", "messages accepted from connections")
    bytes_in: int = counter("bytes", "bytes read from connections")
    messages_out: int = counter("messages", "messages handed to connections")
    bytes_out: int = counter("bytes", "bytes handed to connections")
    dropped: int = counter("messages", "messages not sent because the connection's queue was full")
    lossy: int = counter("messages", "messages sent with a payload that had to be changed")
    refused: Counter[str] = field(
        default_factory=Counter,
        metadata={"unit": "inputs", "meaning": "inputs passed over, by reason; the connection stayed"},
    )
    closed: Counter[str] = field(
        default_factory=Counter,
        metadata={"unit": "connections", "meaning": "connections closed by the broker, by reason"},
    )

    def summary(self) -> str:
        """Those that are not zero, as words for a log line."""
        words = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Counter):
                words += [f"{f.name} {count:,} ({reason})" for reason, count in value.items()]
            elif value:
                words.append(f"{f.name} {value:,}")
        return ", ".join(words) or "nothing happened"
