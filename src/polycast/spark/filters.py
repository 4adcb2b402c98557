"""Converts Spark's pushed-down filters to conditions on the log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource

from polycast.log.read.query import Condition

TESTS: dict[type[datasource.Filter], str] = {
    datasource.EqualTo: "=",
    datasource.EqualNullSafe: "=",
    datasource.In: "in",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
    datasource.StringStartsWith: "starts",
    datasource.StringEndsWith: "ends",
    datasource.StringContains: "contains",
}
KINDS: dict[str, type] = {
    "offset": int, "sequence": int, "time": datetime,
    "topic": str, "dialect": str, "format": str, "source": str,
}  # fmt: skip
"""Columns that the log can filter by, and the type of the values they are compared with."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_conditions(filters: Iterable[datasource.Filter]) -> tuple[list[Condition], list[datasource.Filter]]:
    """The conditions that the log evaluates, and the filters left to Spark."""
    conditions: list[Condition] = []
    left: list[datasource.Filter] = []
    for each in filters:
        if isinstance(each, datasource.IsNotNull) and each.attribute[0] in KINDS:
            continue  # no column of the log has nulls
        condition = _to_condition(each)
        if condition:
            conditions.append(condition)
        else:
            left.append(each)
    return conditions, left


def _to_condition(each: datasource.Filter) -> Condition | None:
    test = TESTS.get(type(each))
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if test is None or len(path) != 1 or path[0] not in KINDS:
        return None
    given: Any = getattr(each, "value", None)
    values: tuple[Any, ...] = given if test == "in" else (given,)
    if not all(type(value) is KINDS[path[0]] for value in values):
        return None
    found = tuple(_to_value(value) for value in values)
    return Condition(path[0], test, found if test == "in" else found[0])


def _to_value(value: Any) -> Any:
    """Times become microseconds. Spark passes times without a zone in local time."""
    if not isinstance(value, datetime):
        return value
    return (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
