"""What becomes of messages that were handed to the log."""

from __future__ import annotations

from typing import NamedTuple


class Settled(NamedTuple):
    """These offsets are kept, or else `reason` says why they are not."""

    first: int
    next: int
    reason: str = ""
