"""The command line: one file per command, each a thin layer over the library.

Data goes to stdout, messages go to stderr. An error is one line, and a `hint:` where there is a cure.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polycast.errors import PolycastError

INTERRUPTED = 130
SPARK_MODULES = ("pyspark", "py4j", "pandas", "numpy")
"""Modules of the extra `spark`."""


def main() -> None:
    """Imports inside the function, so that an interrupt during the imports is quiet too."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run() -> None:
    from polycast.cli import stdio
    from polycast.errors import PolycastError, StartError

    stdio.reopen_closed()
    try:
        from polycast.cli.commands import app

        app()
    except PolycastError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in SPARK_MODULES:
            raise
        _fail(
            StartError(
                f"this command needs Spark, and {missing} is not installed", "pip install 'polycast[spark]'"
            )
        )
    except OSError as error:
        failure = stdio.to_stdout_error(error)
        if failure is None:
            raise
        _fail(failure)


def _fail(error: PolycastError) -> None:
    from polycast.cli import stdio

    stdio.notice(f"polycast: {error}")
    if error.hint:
        stdio.notice(f"hint: {error.hint}")
    sys.exit(error.exit_code)
