"""What the log announces: the fate of a range of offsets."""

from __future__ import annotations

from typing import NamedTuple


class Durable(NamedTuple):
    """The messages from offset `first` up to `next` are durable; with a `reason`, they are lost."""

    first: int
    next: int
    reason: str = ""
