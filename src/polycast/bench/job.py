"""The messages between the benchmark and its driver process, as JSON: a job in, an outcome out.

The driver is a process of its own, so that it does not share an interpreter lock with the progress display.
"""

from __future__ import annotations

from dataclasses import dataclass

from polycast.bench.cells import Cell
from polycast.bench.cpu_time import CpuTime
from polycast.bench.delays import Percentiles

WINDOW_BYTES = 1024 * 1024
"""How far the publisher may be ahead of the slowest subscriber, in topic and payload bytes; the same for every
target. Between 256 KiB and 8 MiB the peers do best here: below, large messages suffer; above, nothing is gained.
It is far below every broker's queue limit (Polycast: 32 MiB per connection)."""


@dataclass(frozen=True)
class Job:
    wire: str
    publish_port: int
    subscribe_port: int
    cell: Cell
    seconds: float
    window_bytes: int = WINDOW_BYTES
    processes: tuple[int, ...] = ()
    """The ids of the target's processes."""
    metrics_port: int | None = None
    """The http listener of a broker with a log."""
    folder: str = ""
    """For the references of `disk_speed`."""


@dataclass(frozen=True)
class Outcome:
    """The result of one measurement. With an `error`, the numbers are meaningless."""

    published: int = 0
    delivered: int = 0
    elapsed: float = 0.0
    window: int = 0
    behind_seconds: float = 0.0
    """Seconds from the last delivery until everything was durable."""
    memory_bytes: int = 0
    """Resident memory of the target; 0: not measured."""
    cpu: CpuTime = CpuTime()
    """While the clock ran."""
    delays: Percentiles | None = None
    """From the due time to the delivery or acknowledgement; None: not measured."""
    sent_late: Percentiles | None = None
    """From the due time until the driver sent the message."""
    log_bytes: int = 0
    """Written to the log while the clock ran; 0: not measured."""
    stored_bytes: float = 0.0
    """Bytes of the log per message, when all were durable; 0: not measured."""
    error: str = ""

    @property
    def rate(self) -> float:
        """Deliveries per second; for other kinds see `cells.HEADINGS`."""
        return self.delivered / self.elapsed

    @property
    def log_rate(self) -> float:
        """Bytes per second."""
        return self.log_bytes / self.elapsed
