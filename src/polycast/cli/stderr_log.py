"""The broker's log on stderr: plain text, or one JSON object per line.

    {"time": "2026-11-16T11:52:00.250Z", "level": "warning", "logger": "polycast.log", "message": "..."}

`exception` has the traceback of an error. With JSON every line is such an object, including Python's warnings and
the reason why a broker did not start.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType

import typer

from polycast.errors import PolycastError

logger = logging.getLogger("polycast")

TEXT = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


@contextmanager
def logging_to_stderr(format_: str, level: int) -> Iterator[None]:
    """Configures logging; with JSON, errors are logged instead of printed."""
    _set_up(format_, level)
    try:
        yield
    except PolycastError as error:
        if format_ != "json":
            raise
        logger.critical("%s%s", error, f"; hint: {error.hint}" if error.hint else "")
        raise typer.Exit(error.exit_code) from error


def _set_up(format_: str, level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format_ == "json" else TEXT)
    logging.basicConfig(level=level, handlers=[handler])
    if format_ == "json":
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("uncaught exception: %s", error, exc_info=(kind, error, trace))


def _log_uncaught_in_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value:
        name = failed.thread.name if failed.thread else "?"
        logger.critical("uncaught exception in thread %s: %s", name, failed.exc_value, exc_info=failed.exc_value)
