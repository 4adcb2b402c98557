"""Patterns of subscriptions, and their text form."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.errors import UsageError

RESERVED_PREFIX = "polycast/"
"""Topics of the broker and its pipelines; only patterns that start with it match them."""


@dataclass(frozen=True, slots=True)
class Exact:
    value: str

    def matches(self, topic: str) -> bool:
        return topic == self.value

    def __str__(self) -> str:
        plain = self.value and self.value[0] not in "~=" and not self.value.endswith(">")
        return self.value if plain else "=" + self.value


@dataclass(frozen=True, slots=True)
class Prefix:
    value: str

    def matches(self, topic: str) -> bool:
        return topic.startswith(self.value) and _open_to(self.value, topic)

    def __str__(self) -> str:
        escape = "^" if self.value.startswith(tuple(MARKS)) else ""
        return f"{escape}{self.value}>"


@dataclass(frozen=True, slots=True)
class Contains:
    value: str

    def matches(self, topic: str) -> bool:
        return self.value in topic and _open_to(self.value, topic)

    def __str__(self) -> str:
        return "~" + self.value


@dataclass(frozen=True, slots=True)
class Everything:
    value: str = ""

    def matches(self, topic: str) -> bool:
        return not topic.startswith(RESERVED_PREFIX)

    def __str__(self) -> str:
        return ">"


Pattern = Exact | Prefix | Contains | Everything

MARKS = "~=^"
"""First characters of a pattern's text that give its kind."""


def _open_to(value: str, topic: str) -> bool:
    return value.startswith(RESERVED_PREFIX) or not topic.startswith(RESERVED_PREFIX)


def parse_pattern(text: str) -> Pattern:
    """The text form: `foo` exact, `foo.>` starts with `foo.`, `~foo` contains, `>` all, `=foo` exact.

    Every pattern has a text that parses back to it: a prefix that starts with a mark is written `^~foo>`.
    """
    if text in (">", "~"):
        return Everything()
    if text.startswith("="):
        return Exact(text[1:])
    if text.startswith("~"):
        return Contains(text[1:])
    if text.endswith(">"):
        escaped = text[0] == "^" and text[1] in MARKS
        return Prefix(text[1 if escaped else 0 : -1])
    if not text:
        raise UsageError("a pattern cannot be empty", "'>' matches everything, '=' just the empty topic")
    return Exact(text)


def parse_patterns(text: str) -> tuple[Pattern, ...]:
    """From a comma-separated list."""
    return tuple(parse_pattern(part.strip()) for part in text.split(","))
