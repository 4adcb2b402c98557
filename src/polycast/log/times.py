"""Times in the log are whole microseconds since 1970, in UTC."""

from __future__ import annotations

MICROS = 1_000_000
"""Microseconds in a second."""


def to_micros(seconds: float) -> int:
    return int(seconds * MICROS)
