"""Limits of arguments that determine how much memory Spark allocates at once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polycast.errors import UsageError
from polycast.pipelines.sql import allowed
from polycast.pipelines.sql.java_objects import Java

SECONDS = {
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1, "minute": 60, "hour": 3600, "day": 86400,
    "week": 604800,
}  # fmt: skip
DURATION = re.compile(rf"(?:interval\s+)?(\d{{1,9}})\s+({'|'.join(SECONDS)})s?", re.IGNORECASE)
WIDTH = re.compile(rf"\d{{{allowed.WIDTH_DIGITS + 1},}}")


class SizeChecker:
    """Accumulates the sizes of one query."""

    def __init__(self) -> None:
        self._growth = 1
        self._grouping_sets = 1

    def check_function(self, name: str, arguments: Sequence[Java]) -> None:
        most = allowed.ARGUMENTS_AT_MOST.get(name)
        if most is not None and len(arguments) > most:
            raise UsageError(f"{name} takes at most {most} arguments, not {len(arguments)}")
        if name in allowed.SIZES and len(arguments) > allowed.SIZES[name]:
            self._check_size(name, arguments[allowed.SIZES[name]])
        if name in allowed.FORMATS and arguments:
            _check_format(name, arguments[0])
        if name == "window":
            _check_windows(arguments)

    def _check_size(self, name: str, argument: Java) -> None:
        size = literal_of(argument)
        if not isinstance(size, int) or abs(size) > allowed.SIZE_LIMIT:
            raise UsageError(
                f"the size argument of {name} must be an integer literal, at most {allowed.SIZE_LIMIT:,}"
            )
        if name in allowed.GROWING:
            self._growth *= max(1, size)
            if self._growth > allowed.SIZE_LIMIT:
                growth = f"repeat and array_repeat multiply the size by {self._growth:,}"
                raise UsageError(f"{growth}; the limit is {allowed.SIZE_LIMIT:,} per query")

    def check_grouping(self, kind: str, node: Java) -> None:
        """CUBE, ROLLUP and GROUPING SETS multiply."""
        given = node.groupingSetIndexes().size()
        self._grouping_sets *= {"Cube": 2 ** min(given, 64), "Rollup": given + 1}.get(kind, max(1, given))
        if self._grouping_sets > allowed.GROUPING_SETS_AT_MOST:
            raise UsageError(f"a query has at most {allowed.GROUPING_SETS_AT_MOST:,} grouping sets")


def literal_of(expression: Java) -> int | str | None:
    """The value of an integer or string literal; None for other expressions."""
    if not expression.getClass().getName().endswith(".expressions.Literal"):
        return None
    value = expression.value()
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return str(value.toString()) if expression.dataType().typeName() == "string" and value is not None else None


def _check_format(name: str, argument: Java) -> None:
    text = literal_of(argument)
    if not isinstance(text, str) or WIDTH.search(text):
        raise UsageError(
            f"the format of {name} must be a literal with widths of at most {allowed.WIDTH_DIGITS} digits"
        )


def _check_windows(arguments: Sequence[Java]) -> None:
    """A row is in length / slide windows."""
    if len(arguments) < 3:
        return
    length, slide = (_seconds(literal_of(argument)) for argument in arguments[1:3])
    if not length or not slide or length / slide > allowed.WINDOWS_AT_MOST:
        hint = "write both durations as literals: window(time, '1 hour', '1 minute')"
        raise UsageError(f"a row can be in at most {allowed.WINDOWS_AT_MOST:,} windows", hint)


def _seconds(text: int | str | None) -> float:
    found = DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    return int(found[1]) * SECONDS[found[2].lower()] if found else 0.0
