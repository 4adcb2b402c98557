"""Spark's errors about a query, with the query text marked: no plan, no stack trace, no error codes."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.errors.exceptions.captured import UnknownException, convert_exception

from polycast.errors import PolycastError, UsageError
from polycast.spark.error_text import unwrap

LINE_AND_COLUMN = re.compile(r"\(?\bline (\d+),? pos (\d+)\)?")
MESSAGE_END = re.compile(r"\s*SQLSTATE: \w{5}|\n== SQL")
"""The end of the readable part."""
CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
SEARCH_PATH = re.compile(r"\nSearch path:.*", re.DOTALL)
INDENT = "  "


@contextlib.contextmanager
def query_errors(query: str) -> Iterator[None]:
    """Converts errors that Spark raises about the query to usage errors."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # logs the same errors again, as JSON
    try:
        yield
    except PySparkException as error:
        raise to_query_error(error, query) from None
    except Py4JJavaError as error:
        raise to_query_error(_find_cause(error), query) from None


def _find_cause(error: Py4JJavaError) -> PySparkException:
    """`toLocalIterator` raises unconverted Java exceptions."""
    cause = error.java_exception
    while (found := convert_exception(cause)) and isinstance(found, UnknownException) and cause.getCause():
        cause = cause.getCause()
    return found


def to_query_error(error: PySparkException, query: str) -> PolycastError:
    text = str(error)
    start, stop = _find(error, text, query)
    if start is None and not isinstance(error, ParseException) and "Traceback" in text:
        return unwrap(error)
    message = " ".join(SEARCH_PATH.sub("", CONDITION.sub("", MESSAGE_END.split(text)[0])).split()).rstrip(";")
    if start is None:
        return UsageError(message.partition("; line")[0])
    return UsageError(f"{message}\n{mark(query, start, stop)}")


def _find(error: PySparkException, text: str, query: str) -> tuple[int | None, int]:
    """Start and stop index of the error in the query."""
    for context in _contexts(error):
        start, stop = context
        if 0 <= start < stop <= len(query):
            return start, stop
    if found := LINE_AND_COLUMN.search(text):
        line, column = int(found[1]), int(found[2])
        before = query.splitlines(keepends=True)[: line - 1]
        start = min(sum(map(len, before)) + column, len(query))
        return start, start + 1
    return None, 0


def _contexts(error: PySparkException) -> Iterator[tuple[int, int]]:
    """Parse errors have no context; errors raised in Python cannot return it."""
    if isinstance(error, ParseException):
        return
    with contextlib.suppress(Exception):
        for context in error.getQueryContext():
            yield context.startIndex(), context.stopIndex() + 1


def mark(query: str, start: int, stop: int) -> str:
    """The query with carets under the marked part."""
    shown = []
    position = 0
    for line in query.splitlines(keepends=True) or [""]:
        text = line.rstrip("\r\n")
        shown.append(INDENT + text.replace("\t", " "))
        first, last = max(start - position, 0), min(stop - position, len(text))
        at_end = start - position == len(text) and position + len(line) >= len(query)
        if first < last or at_end:
            shown.append(INDENT + " " * first + "^" * max(1, last - first))
        position += len(line)
    return "\n".join(shown)
