"""The names that messages were published under, from the names that a mesh gave them.

    //fwd/X     was published as //X or as X; X may be empty

Access to a forwarded name needs access to every original name that it may stand for. A pattern is allowed if every
topic that it matches is allowed, under the names that the topic may have been published under.

A topic below `//fwd/polycast/` cannot have been published as `polycast/...`: such topics are not forwarded.
"""

from __future__ import annotations

from polycast.broker.mesh import FORWARDED
from polycast.model import RESERVED_PREFIX, Contains, Everything, Exact, Pattern, Prefix

NESTED_AT_MOST = 4
"""A broker adds `//fwd/` once. A name with more of them than this may stand for any topic."""
ENDS = tuple(FORWARDED[start:] for start in range(len(FORWARDED)))
"""The beginnings of substrings that begin inside `//fwd/`."""


def originals(pattern: Pattern) -> list[Pattern]:
    """Patterns that together match the original name of every topic that `pattern` matches."""
    if isinstance(pattern, Exact | Prefix):
        return _unwrap([pattern])
    if pattern.value in FORWARDED:
        return [Everything()]
    begun = [pattern.value.removeprefix(end) for end in ENDS if pattern.value.startswith(end)]
    return [pattern, *_unwrap([name for rest in begun for name in _published_as(Prefix, rest)])]


def with_copies(allowed: list[Pattern]) -> list[Pattern]:
    """The forwarded name of `/a` is `//fwd//a`, which contains `//a`: `~//a` therefore includes `/a>`."""
    slashed = [each.value for each in allowed if isinstance(each, Contains) and each.value.startswith("//")]
    return [*allowed, *(Prefix(value[1:]) for value in slashed if len(value) > len("//"))]


def _unwrap(patterns: list[Exact | Prefix]) -> list[Pattern]:
    found: list[Pattern] = []
    for _ in range(NESTED_AT_MOST):
        inner: list[Exact | Prefix] = []
        for pattern in patterns:
            if isinstance(pattern, Prefix) and FORWARDED.startswith(pattern.value):
                return [Everything()]
            if pattern.value.startswith(FORWARDED):
                inner += _published_as(type(pattern), pattern.value.removeprefix(FORWARDED))
            else:
                found.append(pattern)
        if not inner:
            return found
        patterns = inner
    return [Everything()]


def _published_as(kind: type[Exact] | type[Prefix], rest: str) -> list[Exact | Prefix]:
    """The possible original names of `//fwd/` and this rest."""
    plain = [] if rest.startswith(RESERVED_PREFIX) else [kind(rest)]
    return [kind("//" + rest), *plain]
