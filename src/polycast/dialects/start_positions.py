"""Start positions in JSON, the `from` of a subscription or a query: where in the log each topic starts.

    "earliest"   "latest"   "@OFFSET"
    {"T": sequence, ...}   {"topics": {"T": sequence, ...}}
    {"time": "2026-11-15T20:00:00Z"}   {"time": milliseconds since the epoch}

The second form of sequences is for topics with the name `time` or `topics`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from polycast.dialects.json_bodies import shown
from polycast.errors import ProtocolError
from polycast.model import Pattern, StartPosition

EXPECTED = 'earliest, latest, @OFFSET, {"TOPIC": sequence, ...} or {"time": ISO 8601 or milliseconds}'
OFFSET = re.compile("@[0-9]{1,19}")
LAST_SEQUENCE = 2**63 - 1
LAST_MILLISECOND = 253_402_300_799_999
"""Last millisecond of the year 9999."""


class StartPositions(NamedTuple):
    all: StartPosition | None
    sequences: dict[str, int]

    def of(self, topic: str) -> StartPosition | None:
        return StartPosition(self.sequences[topic]) if topic in self.sequences else self.all


LATEST = StartPositions(None, {})


def read_start_positions(value: Any, topics: Collection[str]) -> StartPositions:
    """`topics` are the topics of the same subscription."""
    if value == "latest":
        return LATEST
    if value == "earliest":
        return StartPositions(StartPosition(), {})
    if isinstance(value, str) and OFFSET.fullmatch(value) and int(value[1:]) <= LAST_SEQUENCE:
        return StartPositions(StartPosition(offset=int(value[1:])), {})
    if not isinstance(value, dict) or not value:
        raise ProtocolError(f"from is {shown(value)}, expected {EXPECTED}")
    if "time" in value:
        return StartPositions(StartPosition(seconds=_read_time(value)), {})
    return StartPositions(None, _read_sequences(value, topics))


def to_json_start(start: StartPosition | None, patterns: Iterable[Pattern]) -> Any:
    """The JSON form of one start position for all patterns; None: latest."""
    if start is None:
        return "latest"
    if start.sequence is not None:
        return {"topics": {pattern.value: start.sequence for pattern in patterns}}
    if start.offset is not None:
        return f"@{start.offset}"
    return "earliest" if start.seconds is None else {"time": round(start.seconds * 1000)}


def _read_time(value: dict[str, Any]) -> float:
    if len(value) > 1:
        raise ProtocolError('from has time beside other keys; a topic of that name goes into {"topics": {...}}')
    time = value["time"]
    if isinstance(time, str):
        return _read_iso(time)
    milliseconds = _check_natural(time, "the time in from")
    if milliseconds > LAST_MILLISECOND:
        found = shown(milliseconds)
        raise ProtocolError(f"the time in from is {found}, expected milliseconds up to {LAST_MILLISECOND:,}")
    return milliseconds / 1000


def _read_iso(text: str) -> float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        expected = "ISO 8601 as in 2026-11-15T20:00:00Z, or milliseconds"
        raise ProtocolError(f"the time in from is {shown(text)}, expected {expected}") from error
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return max(0.0, aware.timestamp())


def _read_sequences(value: dict[str, Any], topics: Collection[str]) -> dict[str, int]:
    named = value["topics"] if set(value) == {"topics"} else value
    if not isinstance(named, dict):
        raise ProtocolError(f"the topics in from are {shown(named)}, expected topics with their sequences")
    for topic, sequence in named.items():
        if topic not in topics:
            raise ProtocolError(f"from names {shown(topic)}, expected only what is also in topics")
        if _check_natural(sequence, "a sequence in from") > LAST_SEQUENCE:
            found = shown(sequence)
            raise ProtocolError(f"a sequence in from is {found}, expected no more than {LAST_SEQUENCE:,}")
    return named


def _check_natural(value: Any, key: str) -> int:
    if type(value) is not int or value < 0:
        raise ProtocolError(f"{key} is {shown(value)}, expected an integer, 0 or more")
    return value
