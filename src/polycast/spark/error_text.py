"""What Spark says went wrong, as one line for people.

Spark wraps what was raised in Python, sometimes more than once, and adds both languages' stacks. What was meant
for people is the last line of the innermost Python traceback; without one, it is Spark's own first line.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from polycast.errors import PolycastError, StartError, UsageError

POLYCAST_ERROR = re.compile(r"polycast\.errors\.(\w+): ([^\n]+)")
PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
SQL_STATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
HINT = "; hint: "
"""Between a message and its hint, where both must fit into one line."""


def to_line(error: PolycastError) -> str:
    return f"{error}{HINT}{error.hint}" if error.hint else str(error)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """What is raised in here goes through Spark, which keeps the text of an error and nothing else."""
    try:
        yield
    except PolycastError as error:
        kind = UsageError if isinstance(error, UsageError) else StartError
        raise kind(to_line(error)) from None


def explain(error: BaseException) -> str:
    """What went wrong, in one line, and on a second one what to do about it, if that is known."""
    told = unwrap(error)
    return f"{told}\nhint: {told.hint}" if told.hint else str(told)


def unwrap(error: BaseException) -> PolycastError:
    """What is to be told, and which exit code it has."""
    if isinstance(error, PolycastError):
        return error
    text = _text_of(error)
    if found := POLYCAST_ERROR.findall(text):
        kind, words = found[-1]
        message, _, hint = " ".join(words.split()).partition(HINT)
        return (UsageError if kind == "UsageError" else StartError)(
            SQL_STATE.sub("", message), SQL_STATE.sub("", hint)
        )
    return StartError(SQL_STATE.sub("", _plain(text)))


def _text_of(error: BaseException) -> str:
    message = getattr(getattr(error, "java_exception", error), "getMessage", None)
    return str((message() if callable(message) else None) or error)


def _plain(text: str) -> str:
    if "Traceback (most recent call last)" in text and (raised := PYTHON_ERROR.findall(text)):
        return " ".join(raised[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), "Spark failed without a word")
