"""Notes about patterns in the notation of other systems, such as `foo.*`, `foo/#` or `+`: here they are topics."""

from __future__ import annotations

import re

from polycast.cli import stdio
from polycast.model import Exact, Pattern, parse_pattern

WILDCARD = re.compile(r"\*|(?<![^./])[+#](?![^./])")
"""A star anywhere; `+` and `#` where they are a whole level."""
CONTAINS = re.compile(r"\*+([^*+#]+)\*+")


def read_pattern(text: str) -> Pattern:
    """Parses a pattern. Prints a note about a pattern of another system, unless it begins with `=`."""
    pattern = parse_pattern(text)
    if isinstance(pattern, Exact) and not text.startswith("=") and (better := suggest(text)):
        stdio.notice(f"note: {text!r} is one topic here: *, + and # are no wildcards; {better}")
    return pattern


def suggest(text: str) -> str:
    """The equivalent pattern; empty if the text is not a pattern of another system."""
    found = WILDCARD.search(text)
    if found is None:
        return ""
    if inner := CONTAINS.fullmatch(text):
        return f"'~{inner[1]}' is every topic that contains {inner[1]}"
    start = text[: found.start()]
    return f"'{start}>' is every topic that begins with {start}" if start else "'>' is every topic"
