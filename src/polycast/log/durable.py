"""Announcement of the log: a range of offsets is durable, or lost."""

from __future__ import annotations

from typing import NamedTuple


class Durable(NamedTuple):
    """The messages from offset `first` up to `next` are durable; with a `reason`, they are lost."""

    first: int
    next: int
    reason: str = ""
