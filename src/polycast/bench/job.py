"""The two messages between the benchmark and its driver process: a job goes in, an outcome comes out, both as
JSON.

The driver is a process of its own so that its work and the progress display do not share an interpreter lock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from polycast.bench.cells import Cell

WINDOW_BYTES = 1024 * 1024
"""How far the publisher may run ahead of the slowest subscriber, in topic and payload bytes; the same for
every target. Of 256 KiB to 8 MiB this is where the peers do best: below it large messages suffer, above it
nothing is won. It is also far from any limit at which a broker drops (Polycast: 32 MiB a connection)."""


@dataclass(frozen=True)
class Job:
    wire: str
    publish_port: int
    subscribe_port: int
    cell: Cell
    seconds: float
    window_bytes: int = WINDOW_BYTES

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        fields = json.loads(text)
        cell = fields["cell"]
        names = {key: tuple(cell[key]) for key in ("dialects", "peers")}
        return cls(**{**fields, "cell": Cell(**{**cell, **names})})


@dataclass(frozen=True)
class Outcome:
    """What one measurement gave. With an `error`, the numbers mean nothing."""

    published: int = 0
    delivered: int = 0
    elapsed: float = 0.0
    window: int = 0
    behind_seconds: float = 0.0
    """How long the log took to have everything, from the last delivery on."""
    memory_bytes: int = 0
    """What the target occupies; 0 where nobody looked."""
    error: str = ""

    @property
    def rate(self) -> float:
        """Deliveries per second, or what takes their place: `cells.HEADINGS` says what."""
        return self.delivered / self.elapsed

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        return cls(**json.loads(text))
