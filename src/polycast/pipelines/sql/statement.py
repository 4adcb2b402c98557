"""A query as text, the views that were declared for it, and those that it names itself.

What can be said without Spark is said here; whether the text is SQL, and what it reads, is for Spark's parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polycast.errors import UsageError
from polycast.model import parse_patterns

if TYPE_CHECKING:
    from polycast.pipelines.sql.gate import CheckedQuery, Relation

MESSAGES = "messages"
"""The view of all topics."""
EVERYTHING = ">"
VIEW = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Statement:
    text: str
    views: Mapping[str, str]
    """The patterns, comma-separated, behind each name that was declared."""


def read_statement(text: str, views: Iterable[str] = ()) -> Statement:
    """`views` as people declare them: NAME=PATTERN."""
    if not text.strip(" \t\r\n;"):
        hint = f'polycast sql "SELECT topic, count(*) FROM {MESSAGES} GROUP BY topic"'
        raise UsageError("the query is empty", hint)
    return Statement(text, {MESSAGES: EVERYTHING} | dict(_read_view(view) for view in views))


def _read_view(text: str) -> tuple[str, str]:
    name, separator, pattern = text.partition("=")
    if not separator or not VIEW.fullmatch(name):
        hint = "write NAME=PATTERN, as in --view orders='orders.>'; a name has letters, digits and _"
        raise UsageError(f"--view {text} names no view", hint)
    if name.lower() == MESSAGES:
        raise UsageError(f"{MESSAGES} is the view of all topics already", "choose another name")
    parse_patterns(pattern)
    return name, pattern


def to_views(statement: Statement, checked: CheckedQuery) -> dict[str, str]:
    """The patterns of each relation that the query reads: a declared view, or a pattern in back-ticks."""
    declared = {name.lower(): (name, patterns) for name, patterns in statement.views.items()}
    views: dict[str, str] = {}
    named: dict[str, str] = {}
    for relation in checked.relations:
        if found := declared.get(relation.name.lower()):
            views[found[0]] = found[1]
            continue
        _check_pattern(statement, relation)
        other = named.setdefault(relation.name.lower(), relation.name)
        if other != relation.name:
            hint = "give one of them a name: --view NAME=PATTERN"
            raise UsageError(f"to Spark, `{other}` and `{relation.name}` are one name", hint)
        views[relation.name] = relation.name
    return views


def _check_pattern(statement: Statement, relation: Relation) -> None:
    if not relation.quoted:
        from polycast.pipelines.sql.gate import to_usage_error

        hint = f"there are {', '.join(statement.views)}; a topic or pattern goes in back-ticks: `{relation.name}`"
        words = f"there is no view {relation.name}"
        raise to_usage_error(words, statement.text, relation.begin, relation.end, hint)
    parse_patterns(relation.name)
