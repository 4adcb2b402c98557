from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polycast.cli.log.data_folder import DATA, OTHER_ACCOUNT, open_log
from polycast.cli.log.progress import progress
from polycast.errors import LogDamageError, StartError

if TYPE_CHECKING:
    from polycast.log.files.folder import Segment

NAME = "seal"
HELP = """Seal every hot segment, also the one being written: convert them to Parquet.

A running broker gets a request, and the command waits for it; otherwise the command seals the segments itself."""
EXAMPLE = "polycast log seal --data polycast-data"

POLL_SECONDS = 0.1


def run(data: str = DATA) -> None:
    from polycast.log.files.state import FolderLock

    folder = open_log(data)
    before = len(_hot(folder))
    try:
        lock = FolderLock(folder)
    except StartError:
        _request(folder)
    except OSError as error:
        raise StartError(f"cannot write to {folder}: {error.strerror}", OTHER_ACCOUNT) from error
    else:
        try:
            _seal_here(folder)
        finally:
            lock.release()
    typer.echo(f"sealed {before - len(_hot(folder)):,} of {before:,} hot segments")


def _hot(folder: Path) -> list[Segment]:
    from polycast.log.files.folder import segments

    return [segment for segment in segments(folder) if not segment.sealed]


def _seal_here(folder: Path) -> None:
    from polycast.log.upkeep.sealing import seal

    hot = _hot(folder)
    with progress() as bar:
        for done, segment in enumerate(hot, 1):
            try:
                seal(segment.path)
            except LogDamageError as error:
                hint = "polycast serve copies it to the quarantine and salvages its valid groups"
                raise LogDamageError(str(error), hint) from error
            except OSError as error:
                raise StartError(f"cannot seal {segment.path}: {error.strerror}") from error
            bar.show("sealing", done, len(hot))


def _request(folder: Path) -> None:
    from polycast.log.files.folder import SEAL_REQUEST
    from polycast.log.files.state import is_running

    request = folder / SEAL_REQUEST
    requested = _hot(folder)
    try:
        request.touch()
    except OSError as error:
        raise StartError(f"cannot write to {folder}: {error.strerror}", OTHER_ACCOUNT) from error
    try:
        with progress() as bar:
            while request.exists():
                if not is_running(folder):
                    raise StartError(
                        "the broker stopped before all segments were sealed", "run polycast log seal again"
                    )
                left = {segment.first for segment in _hot(folder)}
                done = sum(segment.first not in left for segment in requested)
                bar.show("sealing", done, len(requested))
                time.sleep(POLL_SECONDS)
    finally:
        request.unlink(missing_ok=True)
