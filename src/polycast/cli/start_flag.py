"""The values of --from: positions in the log."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from polycast.errors import UsageError
from polycast.model import StartPosition

FORMS = "earliest, latest, a sequence, -10m (s, m, h or d) or a time such as 2026-11-15T20:00 (UTC)"
AGO = re.compile(r"-([0-9]{1,9})([smhd])")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LAST_SEQUENCE = 2**63 - 1


def parse_start(text: str, now: float) -> StartPosition | Literal["latest"]:
    if text == "latest":
        return "latest"
    if text == "earliest":
        return StartPosition()
    if ago := AGO.fullmatch(text):
        return StartPosition(seconds=max(0.0, now - int(ago[1]) * UNIT_SECONDS[ago[2]]))
    if re.fullmatch("[0-9]{1,19}", text) and int(text) <= LAST_SEQUENCE:
        return StartPosition(sequence=int(text))
    return StartPosition(seconds=_parse_time(text))


def _parse_time(text: str) -> float:
    """Times without a zone are UTC."""
    try:
        if text.isdigit():
            raise ValueError("a number is a sequence")
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--from {text} is not a position in the log", f"write {FORMS}") from error
    return max(0.0, (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
