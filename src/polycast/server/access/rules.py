"""Rules, as people write them, and what follows from them for one identity in one dialect.

    IDENTITY may everything
    IDENTITY may admin                                  the broker's own routes, and the pages of the http port
    IDENTITY may publish PATTERN
    IDENTITY may serve PATTERN                          respond to requests for routes that match
    IDENTITY may query PATTERN                          SQL over the topics that match
    IDENTITY may publish+subscribe PATTERN over DIALECT+DIALECT

A rule allows; what no rule allows is forbidden. `over` leaves it to some dialects, and may stand behind each form.
Rules are about the names that messages were published under: see `polycast.broker.original_names`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from polycast.broker.original_names import originals, with_copies
from polycast.dialects.registry import ROLES
from polycast.errors import UsageError
from polycast.model import RESERVED_PREFIX, Contains, Exact, Pattern, Prefix, parse_pattern

PUBLISH, SUBSCRIBE, SERVE, QUERY = "publish", "subscribe", "serve", "query"
ADMIN, EVERYTHING = "admin", "everything"
ABOUT_TOPICS = frozenset({PUBLISH, SUBSCRIBE, SERVE, QUERY})
"""Rights that are limited by a pattern."""
LOOPBACK, ANONYMOUS, DIALLED = "loopback", "anonymous", "dialled"
"""Peers of this machine, peers from elsewhere, peers that the broker dialled, where nothing else names them."""
RESERVED_NAMES = (LOOPBACK, ANONYMOUS, DIALLED)
"""Identities that no token and no certificate can have."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:/*-]{0,254}")
RULE = re.compile(r"(\S+) may (\S+)(?: (.*?))??(?: over (\S+))?", re.DOTALL)
ENCODER = "write IDENTITY may publish+subscribe+serve+query PATTERN, IDENTITY may admin or IDENTITY may everything"
K = TypeVar("K")

REMEMBERED = 100_000
"""How many answers are remembered for one identity in one dialect."""


@dataclass(frozen=True, slots=True)
class Rule:
    identity: str
    actions: frozenset[str]
    pattern: Pattern | None = None
    """None for actions that are about no topic."""
    dialects: frozenset[str] = frozenset()
    """Empty: all of them."""

    def holds_in(self, dialect: str) -> bool:
        return not self.dialects or dialect in self.dialects


def parse_rule(text: str) -> Rule:
    match = RULE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no rule", ENCODER)
    identity, words, topics, over = match.groups()
    check_name(identity)
    actions = frozenset(words.split("+"))
    about_topics = actions <= ABOUT_TOPICS
    if not about_topics and actions not in ({ADMIN}, {EVERYTHING}):
        raise UsageError(f"{text!r}: nobody can be allowed to {words}", ENCODER)
    if about_topics != (topics is not None):
        expected = "a pattern is missing" if about_topics else f"{words} has no pattern"
        raise UsageError(f"{text!r}: {expected}", ENCODER)
    return Rule(identity, actions, None if topics is None else parse_pattern(topics), _to_dialects(text, over))


def _to_dialects(text: str, over: str | None) -> frozenset[str]:
    asked = frozenset(over.split("+")) if over else frozenset()
    known = {role.dialect for role in ROLES.values()}
    if unknown := asked - known:
        raise UsageError(f"{text!r}: unknown dialect {min(unknown)}", f"known are {', '.join(sorted(known))}")
    return asked


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        hint = "letters, digits and _ . @ : / * - can be in one, up to 255 of them"
        raise UsageError(f"{name!r} cannot be the name of an identity", hint)


def covers(rule: Pattern, asked: Pattern) -> bool:
    """Whether every topic that matches `asked` also matches `rule`."""
    if isinstance(asked, Exact):
        return rule.matches(asked.value)
    if isinstance(rule, Exact) or (
        asked.value.startswith(RESERVED_PREFIX) and not rule.value.startswith(RESERVED_PREFIX)
    ):
        return False
    if isinstance(rule, Prefix) and isinstance(asked, Contains):
        return not rule.value
    return asked.value.startswith(rule.value) if isinstance(rule, Prefix) else rule.value in asked.value


def covers_originals(rules: list[Pattern], asked: Pattern) -> bool:
    """Whether the rules cover everything that matches `asked`, under the names that it was published under."""
    return all(any(covers(rule, original) for rule in rules) for original in originals(asked))


class Rights:
    """What one identity may do in one dialect. What was asked once is not looked up again."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        listed = list(rules)
        self.admin = any(ADMIN in rule.actions for rule in listed)
        self._publish = _patterns_of(listed, PUBLISH)
        self._subscribe = with_copies(_patterns_of(listed, SUBSCRIBE))
        self._serve = _patterns_of(listed, SERVE)
        queried = with_copies(_patterns_of(listed, QUERY))
        self.query_patterns = [pattern for pattern in queried if covers_originals(queried, pattern)]
        """The topics that SQL may read."""
        self._topics: dict[bytes, bool] = {}
        self._patterns: dict[Pattern, bool] = {}

    @property
    def none(self) -> bool:
        return not (self.admin or self._publish or self._subscribe or self._serve or self.query_patterns)

    @property
    def may_publish_anything(self) -> bool:
        return bool(self._publish)

    def may_publish(self, topic: bytes) -> bool:
        known = self._topics.get(topic)
        return self._look_up(topic) if known is None else known

    def _look_up(self, topic: bytes) -> bool:
        """What is no UTF-8 is no topic, and refused later on as such."""
        text = topic.decode(errors="replace")
        return _remember(self._topics, topic, covers_originals(self._publish, Exact(text)))

    def may_subscribe(self, pattern: Pattern) -> bool:
        known = self._patterns.get(pattern)
        if known is None:
            known = covers_originals(self._subscribe, pattern)
            _remember(self._patterns, pattern, known)
        return known

    def may_serve(self, route: str) -> bool:
        return any(pattern.matches(route) for pattern in self._serve)

    def narrow(self, pattern: Pattern) -> list[Pattern]:
        """What may be subscribed to of that which was not asked for word by word."""
        if self.may_subscribe(pattern):
            return [pattern]
        return [rule for rule in self._subscribe if covers(pattern, rule) and self.may_subscribe(rule)]


def _patterns_of(rules: list[Rule], action: str) -> list[Pattern]:
    return [rule.pattern for rule in rules if rule.pattern and action in rule.actions]


def _remember(known: dict[K, bool], key: K, answer: bool) -> bool:
    if len(known) >= REMEMBERED:
        known.clear()
    known[key] = answer
    return answer


def rights_of(rules: Iterable[Rule], identity: str, dialect: str) -> Rights | None:
    """None: it may do everything."""
    held = [rule for rule in rules if rule.identity == identity and rule.holds_in(dialect)]
    return None if any(EVERYTHING in rule.actions for rule in held) else Rights(held)
