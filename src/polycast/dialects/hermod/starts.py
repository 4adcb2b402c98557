"""`from` in a handshake of `hermod`: where in the log each topic begins.

    "earliest"   "latest"
    {"T": sequence, ...}   {"topics": {"T": sequence, ...}}
    {"time": "2026-11-15T20:00:00Z"}   {"time": milliseconds since the epoch}

The second form of sequences is for topics that are called `time` or `topics`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, NamedTuple

from polycast.dialects.hermod.headers import HermodError, shown, to_natural
from polycast.model import StartPosition

EXPECTED = 'earliest, latest, {"TOPIC": sequence, ...} or {"time": ISO 8601 or milliseconds}'
LAST_SEQUENCE = 2**63 - 1
LAST_MILLISECOND = 253_402_300_799_999
"""Of the year 9999."""


class Starts(NamedTuple):
    all: StartPosition | None
    sequences: dict[str, int]

    def of(self, topic: str) -> StartPosition | None:
        return StartPosition(self.sequences[topic]) if topic in self.sequences else self.all


LATEST = Starts(None, {})


def read_starts(value: Any, topics: Collection[str]) -> Starts:
    """`topics` are those of the same handshake."""
    if value == "latest":
        return LATEST
    if value == "earliest":
        return Starts(StartPosition(), {})
    if not isinstance(value, dict) or not value:
        raise HermodError(400, f"from is {shown(value)}, expected {EXPECTED}")
    if "time" in value:
        return Starts(StartPosition(seconds=_read_time(value)), {})
    return Starts(None, _read_sequences(value, topics))


def _read_time(value: dict[str, Any]) -> float:
    if len(value) > 1:
        raise HermodError(400, 'from has time beside other keys; a topic of that name goes into {"topics": {...}}')
    time = value["time"]
    if isinstance(time, str):
        return _read_iso(time)
    milliseconds = to_natural(time, "the time in from")
    if milliseconds > LAST_MILLISECOND:
        found = shown(milliseconds)
        raise HermodError(400, f"the time in from is {found}, expected milliseconds up to {LAST_MILLISECOND:,}")
    return milliseconds / 1000


def _read_iso(text: str) -> float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        expected = "ISO 8601 as in 2026-11-15T20:00:00Z, or milliseconds"
        raise HermodError(400, f"the time in from is {shown(text)}, expected {expected}") from error
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return max(0.0, aware.timestamp())


def _read_sequences(value: dict[str, Any], topics: Collection[str]) -> dict[str, int]:
    named = value["topics"] if set(value) == {"topics"} else value
    if not isinstance(named, dict):
        raise HermodError(400, f"the topics in from are {shown(named)}, expected topics with their sequences")
    for topic, sequence in named.items():
        if topic not in topics:
            raise HermodError(400, f"from names {shown(topic)}, expected only what is also in topics")
        if to_natural(sequence, "a sequence in from") > LAST_SEQUENCE:
            found = shown(sequence)
            raise HermodError(400, f"a sequence in from is {found}, expected no more than {LAST_SEQUENCE:,}")
    return named
