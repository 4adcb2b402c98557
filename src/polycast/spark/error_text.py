"""Turns an exception from Spark into one readable line.

Spark wraps Python exceptions, sometimes more than once, and adds the stack traces of both languages. The readable
part is the last line of the innermost Python traceback; without a traceback, it is Spark's first line.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from polycast.errors import PolycastError, StartError, UsageError

POLYCAST_ERROR = re.compile(r"polycast\.errors\.(\w+): ([^\n]+)")
PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
SQL_STATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
UPDATE_MODE = "does not support Update mode"
HINT = "; hint: "
"""Separates a message from its hint on one line."""


def to_line(error: PolycastError) -> str:
    return f"{error}{HINT}{error.hint}" if error.hint else str(error)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Moves the hint of an error into its message: Spark transports the text of an exception and nothing else."""
    try:
        yield
    except PolycastError as error:
        kind = UsageError if isinstance(error, UsageError) else StartError
        raise kind(to_line(error)) from None


def explain(error: BaseException) -> str:
    """The error on one line, and its hint, if there is one, on a second line."""
    found = unwrap(error)
    return f"{found}\nhint: {found.hint}" if found.hint else str(found)


def unwrap(error: BaseException) -> PolycastError:
    """The Polycast error inside an exception from Spark; its type decides the exit code."""
    if isinstance(error, PolycastError):
        return error
    text = _text_of(error)
    if found := POLYCAST_ERROR.findall(text):
        kind, line = found[-1]
        message, _, hint = " ".join(line.split()).partition(HINT)
        return (UsageError if kind == "UsageError" else StartError)(
            SQL_STATE.sub("", message), SQL_STATE.sub("", hint)
        )
    if UPDATE_MODE in text:
        hint = 'use outputMode("update").foreachBatch(polycast.spark.publish("tcp://HOST:PORT"))'
        return UsageError("Spark does not support the output mode update in a Python sink", hint)
    return StartError(SQL_STATE.sub("", _plain(text)))


def _text_of(error: BaseException) -> str:
    message = getattr(getattr(error, "java_exception", error), "getMessage", None)
    return str((message() if callable(message) else None) or error)


def _plain(text: str) -> str:
    if "Traceback (most recent call last)" in text and (raised := PYTHON_ERROR.findall(text)):
        return " ".join(raised[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), "Spark failed without a message")
