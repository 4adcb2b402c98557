"""Access rules, and the rights of one identity in one dialect that follow from them.

    IDENTITY may everything
    IDENTITY may admin                                  the broker's own routes, and the pages of the http listener
    IDENTITY may publish PATTERN
    IDENTITY may serve PATTERN                          respond to requests for routes that match
    IDENTITY may query PATTERN                          SQL over the topics that match
    IDENTITY may publish+subscribe PATTERN over DIALECT+DIALECT

A rule allows; everything else is forbidden. `over` limits a rule to some dialects, and may follow every form.
Rules apply to the topics that messages were published to: see `polycast.broker.original_names`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from polycast.broker.original_names import originals, with_copies
from polycast.dialects.registry import ROLES
from polycast.errors import UsageError
from polycast.model import RESERVED_PREFIX, Contains, Exact, Pattern, Prefix, parse_pattern

PUBLISH, SUBSCRIBE, SERVE, QUERY = "publish", "subscribe", "serve", "query"
ADMIN, EVERYTHING = "admin", "everything"
PATTERN_ACTIONS = frozenset({PUBLISH, SUBSCRIBE, SERVE, QUERY})
"""Actions that take a pattern."""
LOOPBACK, ANONYMOUS, DIALLED = "loopback", "anonymous", "dialled"
"""Local peers, remote peers and dialled servers without any other identity."""
RESERVED_NAMES = (LOOPBACK, ANONYMOUS, DIALLED)
"""Identities that no token or certificate can have."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:/*-]{0,254}")
RULE = re.compile(r"(\S+) may (\S+)(?: (.*?))??(?: over (\S+))?", re.DOTALL)
RULE_SYNTAX = (
    "write IDENTITY may publish+subscribe+serve+query PATTERN, IDENTITY may admin or IDENTITY may everything"
)
K = TypeVar("K")

CACHE_BYTES = 8 * 1024 * 1024
"""The size of one cache of decisions; an identity has two in each dialect. Peers choose the names."""
DECISION_BYTES = 100
"""Memory of one cached decision, without the name."""


@dataclass(frozen=True, slots=True)
class Rule:
    identity: str
    actions: frozenset[str]
    pattern: Pattern | None = None
    """None for actions without a pattern."""
    dialects: frozenset[str] = frozenset()
    """Empty: all dialects."""

    def holds_in(self, dialect: str) -> bool:
        return not self.dialects or dialect in self.dialects


def parse_rule(text: str) -> Rule:
    match = RULE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a rule", RULE_SYNTAX)
    identity, words, topics, over = match.groups()
    if topics is not None and (topics if over else text)[-1:].isspace():  # `~` is everything, and `~ ` is not
        raise UsageError(f"{text!r}: the pattern ends with a blank", "leave the blank out")
    check_name(identity)
    actions = frozenset(words.split("+"))
    has_pattern = actions <= PATTERN_ACTIONS
    if not has_pattern and actions not in ({ADMIN}, {EVERYTHING}):
        raise UsageError(f"{text!r}: unknown action {words}", RULE_SYNTAX)
    if has_pattern != (topics is not None):
        expected = "a pattern is missing" if has_pattern else f"{words} takes no pattern"
        raise UsageError(f"{text!r}: {expected}", RULE_SYNTAX)
    return Rule(identity, actions, None if topics is None else parse_pattern(topics), _to_dialects(text, over))


def _to_dialects(text: str, over: str | None) -> frozenset[str]:
    named = frozenset(over.split("+")) if over else frozenset()
    known = {role.dialect for role in ROLES.values()}
    if unknown := named - known:
        raise UsageError(f"{text!r}: unknown dialect {min(unknown)}", f"known are {', '.join(sorted(known))}")
    return named


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        hint = "allowed are up to 255 letters, digits and _ . @ : / * -"
        raise UsageError(f"{name!r} is not a valid identity", hint)


def covers(rule: Pattern, requested: Pattern) -> bool:
    """Whether every topic that matches `requested` also matches `rule`."""
    if isinstance(requested, Exact):
        return rule.matches(requested.value)
    if isinstance(rule, Exact) or (
        requested.value.startswith(RESERVED_PREFIX) and not rule.value.startswith(RESERVED_PREFIX)
    ):
        return False
    if isinstance(rule, Prefix) and isinstance(requested, Contains):
        return not rule.value
    return requested.value.startswith(rule.value) if isinstance(rule, Prefix) else rule.value in requested.value


def covers_originals(rules: list[Pattern], requested: Pattern) -> bool:
    """Whether the rules cover all topics that messages which match `requested` were published to."""
    return all(any(covers(rule, original) for rule in rules) for original in originals(requested))


class DecisionCache(Generic[K]):
    """Decisions by topic or pattern. A full cache is cleared."""

    def __init__(self) -> None:
        self.known: dict[K, bool] = {}
        self._bytes = 0

    def add(self, key: K, allowed: bool, size: int) -> bool:
        self._bytes += size + DECISION_BYTES
        if self._bytes > CACHE_BYTES:
            self.known.clear()
            self._bytes = size + DECISION_BYTES
        self.known[key] = allowed
        return allowed


class Rights:
    """What one identity may do in one dialect. Decisions are cached."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        listed = list(rules)
        self.admin = any(ADMIN in rule.actions for rule in listed)
        self._publish = _patterns_of(listed, PUBLISH)
        self._subscribe = with_copies(_patterns_of(listed, SUBSCRIBE))
        self._serve = _patterns_of(listed, SERVE)
        queried = with_copies(_patterns_of(listed, QUERY))
        self.query_patterns = [pattern for pattern in queried if covers_originals(queried, pattern)]
        """The topics that SQL may read."""
        self._topics: DecisionCache[bytes] = DecisionCache()
        self._patterns: DecisionCache[Pattern] = DecisionCache()

    @property
    def none(self) -> bool:
        return not (self.admin or self._publish or self._subscribe or self._serve or self.query_patterns)

    @property
    def may_publish_anything(self) -> bool:
        return bool(self._publish)

    def may_publish(self, topic: bytes) -> bool:
        if not self._publish:
            return False
        known = self._topics.known.get(topic)
        return self._look_up(topic) if known is None else known

    def _look_up(self, topic: bytes) -> bool:
        """A topic that is not UTF-8 is refused later."""
        text = topic.decode(errors="replace")
        return self._topics.add(topic, covers_originals(self._publish, Exact(text)), len(topic))

    def may_subscribe(self, pattern: Pattern) -> bool:
        if not self._subscribe:
            return False
        known = self._patterns.known.get(pattern)
        if known is None:
            covered = covers_originals(self._subscribe, pattern)
            known = self._patterns.add(pattern, covered, len(pattern.value.encode()))
        return known

    def may_serve(self, route: str) -> bool:
        return any(pattern.matches(route) for pattern in self._serve)

    def narrow(self, pattern: Pattern) -> list[Pattern]:
        """The allowed part of a pattern, as patterns."""
        if self.may_subscribe(pattern):
            return [pattern]
        return [rule for rule in self._subscribe if covers(pattern, rule) and self.may_subscribe(rule)]


def _patterns_of(rules: list[Rule], action: str) -> list[Pattern]:
    return [rule.pattern for rule in rules if rule.pattern and action in rule.actions]


def rights_of(rules: Iterable[Rule], identity: str, dialect: str) -> Rights | None:
    """None: everything is allowed."""
    held = [rule for rule in rules if rule.identity == identity and rule.holds_in(dialect)]
    return None if any(EVERYTHING in rule.actions for rule in held) else Rights(held)
