"""The option `--data`, and the log in that folder."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import typer

from polycast.errors import StartError, UsageError
from polycast.log.files.permissions import restrict, umask_of


def _restrict(data: str) -> str:
    """New files of a command get the permissions of the log."""
    restrict(umask_of(Path(data)))
    return data


DATA = typer.Option(
    "polycast-data", "--data", envvar="POLYCAST_DATA", help="The data folder.", metavar="DIR", callback=_restrict
)


OTHER_ACCOUNT = "run the command with the account of the broker, or set log.access"


def open_log(data: str) -> Path:
    """The folder of the log. Log lines of the library go to stderr from here on."""
    from polycast.log.files.folder import log_folder
    from polycast.log.files.state import read_state

    folder = log_folder(data)
    try:
        next(folder.iterdir(), None)
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "--data DIR or POLYCAST_DATA sets the data folder"
        raise UsageError(f"there is no log in {data}", hint) from error
    except OSError as error:
        raise StartError(f"cannot read {folder}: {error.strerror}", OTHER_ACCOUNT) from error
    read_state(folder)  # raises LogVersionError
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="polycast: %(message)s")
    return folder
