"""What becomes of messages that were handed to the log."""

from __future__ import annotations

from typing import NamedTuple


class Settled(NamedTuple):
    """These offsets are kept, or else `reason` says why they are not."""

    first: int
    next: int
    reason: str = ""


ANOTHER_COUNT = (
    "batch %s was published with %s messages, and now it has %s: nothing is published; send the same messages "
    "again, or use another batch_id"
)
"""What is told to who repeats a batch that is not the same: its id, and both counts."""
