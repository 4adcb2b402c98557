"""What Spark has to say about a query, with the line marked: no plan, no stack, no codes."""

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
"""What comes behind the words for people."""
CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
SEARCH_PATH = re.compile(r"\nSearch path:.*", re.DOTALL)
INDENT = "  "


@contextlib.contextmanager
def query_errors(query: str) -> Iterator[None]:
    """What Spark finds wrong with the query in here is the user's mistake. Anything else stays what it is."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it would tell all of it a second time, as JSON
    try:
        yield
    except PySparkException as error:
        raise to_query_error(error, query) from None
    except Py4JJavaError as error:
        raise to_query_error(_find_cause(error), query) from None


def _find_cause(error: Py4JJavaError) -> PySparkException:
    """Where Spark hands out row by row, Python has to look for the cause by itself."""
    cause = error.java_exception
    while (found := convert_exception(cause)) and isinstance(found, UnknownException) and cause.getCause():
        cause = cause.getCause()
    return found


def to_query_error(error: PySparkException, query: str) -> PolycastError:
    text = str(error)
    begin, end = _find(error, text, query)
    if begin is None and not isinstance(error, ParseException) and "Traceback" in text:
        return unwrap(error)
    words = " ".join(SEARCH_PATH.sub("", CONDITION.sub("", MESSAGE_END.split(text)[0])).split()).rstrip(";")
    if begin is None:
        return UsageError(words.partition("; line")[0])
    return UsageError(f"{words}\n{mark(query, begin, end)}")


def _find(error: PySparkException, text: str, query: str) -> tuple[int | None, int]:
    """Where in the query it is: the first letter, and the one behind the last."""
    for context in _contexts(error):
        begin, end = context
        if 0 <= begin < end <= len(query):
            return begin, end
    if place := LINE_AND_COLUMN.search(text):
        line, column = int(place[1]), int(place[2])
        before = query.splitlines(keepends=True)[: line - 1]
        begin = min(sum(map(len, before)) + column, len(query))
        return begin, begin + 1
    return None, 0


def _contexts(error: PySparkException) -> Iterator[tuple[int, int]]:
    """A parse error has none; one that comes from Python cannot be asked."""
    if isinstance(error, ParseException):
        return
    with contextlib.suppress(Exception):
        for context in error.getQueryContext():
            yield context.startIndex(), context.stopIndex() + 1


def mark(query: str, begin: int, end: int) -> str:
    """The whole query, with carets under the part of it that is meant."""
    shown = []
    position = 0
    for line in query.splitlines(keepends=True) or [""]:
        text = line.rstrip("\r\n")
        shown.append(INDENT + text.replace("\t", " "))
        first, last = max(begin - position, 0), min(end - position, len(text))
        at_end = begin - position == len(text) and position + len(line) >= len(query)
        if first < last or at_end:
            shown.append(INDENT + " " * first + "^" * max(1, last - first))
        position += len(line)
    return "\n".join(shown)
