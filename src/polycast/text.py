"""Text for people: sizes and times, and foreign text that is safe to print on a terminal."""

from __future__ import annotations

import re

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = re.compile(r"(?:([0-9]{1,18}) *B?|([0-9]{1,9}(?:\.[0-9]{1,9})?) *([KMGT])i?B?)", re.IGNORECASE)
"""A fraction needs a unit: `0.1` alone is more likely a ratio than a size."""

TIMES = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
TIME = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) *(ms|s|m|h|d|w|)", re.IGNORECASE)

CREDENTIALS = re.compile(r'(://(?:[^/@:"\s]*:)?)[^/@"\s]*@')
"""In an address: a password with what is before it, or a token."""


def parse_size(text: str) -> int:
    """Bytes: `1048576`, `1MiB`, `1.5 GiB`; `GB` is `GiB`. Raises ValueError for anything else."""
    match = SIZE.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise ValueError("expected a number of bytes, or a size such as 512MiB or 10GB")
    return int(match[1]) if match[1] else int(float(match[2]) * UNITS[match[3].upper()])


def parse_seconds(text: str) -> float:
    """Seconds: `90`, `1.5`, `250ms`, `30s`, `10m`, `12h`, `7d`, `2w`. Raises ValueError for anything else."""
    match = TIME.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise ValueError("expected a number of seconds, or a time such as 250ms, 30s, 10m, 12h or 7d")
    return float(match[1]) * TIMES[match[2].lower()]


def size_text(size: float) -> str:
    """`2.0 GiB`."""
    unit = next((name for name in "TGMK" if size >= UNITS[name]), "")
    return f"{size / UNITS[unit]:,.1f} {unit}iB" if unit else f"{size:,.0f} bytes"


def printable(text: str, keep: str = "") -> str:
    """`text` with unprintable characters as escapes: it cannot break lines or control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def hide_credentials(text: str) -> str:
    """Addresses in the text without their passwords and tokens."""
    return CREDENTIALS.sub(r"\1***@", text)
