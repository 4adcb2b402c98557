"""Positions in the log, where a subscription or a read starts, and their text form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from polycast.errors import UsageError

SYNTAX = "earliest, latest, @OFFSET, a sequence, -10m (s, m, h or d) or a time such as 2026-11-15T20:00 (UTC)"
AGO = re.compile(r"-([0-9]{1,9})([smhd])")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NUMBER = re.compile("[0-9]{1,19}")
LARGEST = 2**63 - 1
"""The largest offset, and the largest sequence."""


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where in the log a subscription starts: at a sequence of its topic, at a time, at an offset, or at the
    first message."""

    sequence: int | None = None
    seconds: float | None = None
    """Since the epoch."""
    offset: int | None = None


def parse_start(text: str, now: float) -> StartPosition | Literal["latest"]:
    """UsageError: not a position."""
    if text == "latest":
        return "latest"
    if text == "earliest":
        return StartPosition()
    if ago := AGO.fullmatch(text):
        return StartPosition(seconds=max(0.0, now - int(ago[1]) * UNIT_SECONDS[ago[2]]))
    number = text.removeprefix("@")
    if NUMBER.fullmatch(number) and int(number) <= LARGEST:
        return StartPosition(offset=int(number)) if text != number else StartPosition(sequence=int(number))
    return StartPosition(seconds=_parse_time(text))


def _parse_time(text: str) -> float:
    """Times without a zone are UTC."""
    try:
        if text.isdigit():
            raise ValueError("a number is a sequence")
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a position in the log", f"write {SYNTAX}") from error
    return max(0.0, (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
