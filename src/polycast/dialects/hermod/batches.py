"""The batches of `hermod`: several messages that get one reply."""

from __future__ import annotations

import sys
from enum import Enum, auto

from polycast.dialects.hermod.forms import to_error, to_ok
from polycast.dialects.hermod.headers import UNSET, Header

NEEDS_THE_LOG = "%s needs the log"
"""What it is counted under."""
NEEDS_THE_LOG_HERE = NEEDS_THE_LOG + ", which this broker does not have; leave the key out"


class State(Enum):
    SINGLE = auto()
    COUNTING = auto()
    STREAMING = auto()


class Batch:
    """A refused one is read to its end, and none of it is published."""

    def __init__(self, expected: int = sys.maxsize, header: Header | None = None) -> None:
        self.expected = expected
        self.accepted = 0
        self.refused = header is not None and header.batch_id is not UNSET
        self.error = (501, NEEDS_THE_LOG_HERE % "batch_id") if self.refused else None

    def reply(self) -> bytes:
        return to_error(*self.error, self.accepted) if self.error else to_ok(self.accepted)
