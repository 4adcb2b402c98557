"""What the event loop hands to the writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polycast.log.files.format import StreamPosition
from polycast.log.write.bulk import NumberedBulk
from polycast.model import BatchKey, Burst

ROW_BYTES = 96
"""About the bytes of a message in a group, in addition to its topic and payload."""


class Entry(NamedTuple):
    """Messages that become durable together: bursts that were numbered one after the other, or a bulk batch."""

    bursts: Sequence[Burst]
    source: bytes
    micros: int
    first: int
    next: int
    size: int
    batch: BatchKey | None = None
    messages: int = 0
    """The messages of the batch. Copies under other names of a mesh do not count."""
    bulk: NumberedBulk | None = None
    """Instead of bursts. A bulk batch is a group of its own."""
    position: StreamPosition | None = None
    """The last entry of a message of the stream has the position after it."""
    lost: bool = False
    """Whether the log failed to store it. Subscribers with committed delivery never get it."""
