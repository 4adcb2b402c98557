"""Text for people: sizes, and foreign text that is safe to print on a terminal."""

from __future__ import annotations

import re

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = re.compile(r"(?:([0-9]{1,18}) *B?|([0-9]{1,9}(?:\.[0-9]{1,9})?) *([KMGT])i?B?)", re.IGNORECASE)
"""A fraction needs a unit: `0.1` alone is more likely a ratio than a size."""


def parse_size(text: str) -> int:
    """Bytes: `1048576`, `1MiB`, `1.5 GiB`. Raises ValueError for anything else."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a number of bytes, or a size such as 500MiB or 2GiB")
    return int(match[1]) if match[1] else int(float(match[2]) * UNITS[match[3].upper()])


def size_text(size: float) -> str:
    """`2.0 GiB`."""
    unit = next((name for name in "TGMK" if size >= UNITS[name]), "")
    return f"{size / UNITS[unit]:,.1f} {unit}iB" if unit else f"{size:,.0f} bytes"


def printable(text: str, keep: str = "") -> str:
    """`text` with unprintable characters as escapes: it cannot break lines or control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
