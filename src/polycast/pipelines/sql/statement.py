"""A query as text: one statement, that only reads, and the patterns that it names in back-ticks.

All of this is known before Spark starts, which takes a while. Whether it is SQL is for Spark to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from polycast.errors import UsageError
from polycast.model import MARKS, parse_patterns

MESSAGES = "messages"
"""The view of all topics."""
EVERYTHING = ">"

TOKEN = re.compile(
    r"""
      (?P<gap>    \s+ | --[^\n]* | /\*.*?\*/)
    | (?P<string> [rR]'[^']*' | [rR]"[^"]*" | '(?:\\.|''|[^'\\])*' | "(?:\\.|""|[^"\\])*")
    | (?P<name>   `(?:``|[^`])*`)
    | (?P<word>   \w+)
    | (?P<mark>   .)
    """,
    re.VERBOSE | re.DOTALL,
)
FLOWING = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
"""How queries begin that can also follow a stream."""
READING = (*FLOWING, "DESCRIBE", "DESC", "EXPLAIN", "SHOW")
WRITING = (
    "INSERT",
    "CREATE",
    "DROP",
    "ALTER",
    "DELETE",
    "UPDATE",
    "MERGE",
    "TRUNCATE",
    "REPLACE",
    "LOAD",
    "CACHE",
    "SET",
)
VIEW = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


@dataclass(frozen=True)
class Statement:
    text: str
    views: Mapping[str, str]
    """The patterns, comma-separated, behind each name that is known to the query."""
    flows: bool
    """Whether it can be asked of a stream, too."""


def read_statement(text: str, views: Iterable[str] = ()) -> Statement:
    """`views` as people declare them: NAME=PATTERN."""
    tokens = [token for token in _tokens(text) if token.kind != "gap"]
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    _check_one(tokens)
    first = _check_reads(tokens)
    known = {MESSAGES: EVERYTHING} | dict(_read_view(view) for view in views)
    return Statement(text, _with_named(known, tokens), first in FLOWING)


def _tokens(text: str) -> Iterable[Token]:
    for found in TOKEN.finditer(text):
        yield Token(str(found.lastgroup), found[0])


# -- what is asked ---------------------------------------------------------------------------------------


def _check_one(tokens: list[Token]) -> None:
    if not tokens:
        raise UsageError(
            "the query is empty", f'polycast sql "SELECT topic, count(*) FROM {MESSAGES} GROUP BY topic"'
        )
    more = sum(token.text == ";" for token in tokens)
    if more:
        raise UsageError(
            f"these are {more + 1} statements, and one is asked at a time", "leave out what follows ';'"
        )


def _check_reads(tokens: list[Token]) -> str:
    """The word it begins with."""
    first = next((token for token in tokens if token.text != "("), tokens[0])
    written = any(a.word == "INSERT" and b.word in ("INTO", "OVERWRITE") for a, b in pairwise(tokens))
    if written or first.word in WRITING:
        word = "INSERT" if written else first.word
        hint = "--into TOPIC publishes what a query finds, --to PATH keeps it"
        raise UsageError(f"{word} changes something, and queries only read", hint)
    if first.word not in READING:
        raise UsageError(f"a query does not begin with {first.text[:40]}", f"it begins with {', '.join(READING)}")
    return first.word


# -- what it is asked of ---------------------------------------------------------------------------------


def _read_view(text: str) -> tuple[str, str]:
    name, separator, pattern = text.partition("=")
    if not separator or not VIEW.fullmatch(name):
        hint = "write NAME=PATTERN, as in --view orders='orders.>'; a name has letters, digits and _"
        raise UsageError(f"--view {text} names no view", hint)
    if name.lower() == MESSAGES:
        raise UsageError(f"{MESSAGES} is the view of all topics already", "choose another name")
    parse_patterns(pattern)
    return name, pattern


def _with_named(known: dict[str, str], tokens: list[Token]) -> dict[str, str]:
    """Names of relations in back-ticks that are no views are patterns."""
    views = dict(known)
    names = {name.lower(): name for name in known}
    for pattern in _patterns(tokens):
        other = names.setdefault(pattern.lower(), pattern)
        if other != pattern and other not in known:
            hint = "give one of them a name: --view NAME=PATTERN"
            raise UsageError(f"to Spark, `{other}` and `{pattern}` are one name", hint)
        if other == pattern and other not in known:
            parse_patterns(pattern)
            views[pattern] = pattern
    return views


def _patterns(tokens: list[Token]) -> Iterable[str]:
    """In back-ticks, and either right behind FROM or JOIN or not to be taken for anything but a pattern."""
    around = [Token("mark", ""), *tokens, Token("mark", "")]
    for before, token, after in zip(around, tokens, around[2:], strict=False):
        if token.kind != "name" or "." in (before.text, after.text):
            continue
        text = token.text[1:-1].replace("``", "`")
        if before.word in ("FROM", "JOIN") or text.endswith(">") or text.startswith(tuple(MARKS)):
            yield text
