"""The text of a query and its views: declared ones, and patterns in back-ticks.

Validates what does not need Spark; Spark's parser decides whether the text is SQL, and which relations it reads.
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
    """Comma-separated patterns by name of the view."""


def read_statement(text: str, views: Iterable[str] = ()) -> Statement:
    """`views` are NAME=PATTERN."""
    if not text.strip(" \t\r\n;"):
        hint = f'polycast sql "SELECT topic, count(*) FROM {MESSAGES} GROUP BY topic"'
        raise UsageError("the query is empty", hint)
    return Statement(text, {MESSAGES: EVERYTHING} | dict(_read_view(view) for view in views))


def _read_view(text: str) -> tuple[str, str]:
    name, separator, pattern = text.partition("=")
    if not separator or not VIEW.fullmatch(name):
        hint = "for example: --view orders='orders.>'; a name has letters, digits and _"
        raise UsageError(f"--view {text} is not NAME=PATTERN", hint)
    if name.lower() == MESSAGES:
        raise UsageError(f"--view {text}: the name {MESSAGES} is reserved for all topics", "choose another name")
    parse_patterns(pattern)
    return name, pattern


def to_views(statement: Statement, checked: CheckedQuery) -> dict[str, str]:
    """The patterns of each relation of the query: a declared view, or a pattern in back-ticks."""
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
            hint = "declare one of them as a view: --view NAME=PATTERN"
            raise UsageError(f"`{other}` and `{relation.name}` differ only in case, which Spark ignores", hint)
        views[relation.name] = relation.name
    return views


def _check_pattern(statement: Statement, relation: Relation) -> None:
    if not relation.quoted:
        from polycast.pipelines.sql.gate import to_usage_error

        hint = f"views: {', '.join(statement.views)}; write a topic or pattern in back-ticks: `{relation.name}`"
        message = f"unknown view {relation.name}"
        raise to_usage_error(message, statement.text, relation.start, relation.stop, hint)
    parse_patterns(relation.name)
