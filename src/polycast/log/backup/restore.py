"""Restore of a backup into a new data folder.

The files are written to `log.restoring` in the data folder, compared with the manifest, and fsynced. Only then the
folder gets the name `log`. A broker does not start where `log.restoring` is: an interrupted restore is never taken
for a log.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from polycast.errors import BackupError
from polycast.log.backup.backup import Phase, Report, check_digest, opened_backup
from polycast.log.backup.manifest import Manifest
from polycast.log.backup.stores import Opener, Step, write_file
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import RESTORING, log_folder, make_folder
from polycast.log.files.permissions import check_owners
from polycast.text import size_text


def restore(
    source: Path, data: Path, report: Report = lambda phase: lambda done: None, disk: Disk = DISK
) -> Manifest:
    """Raises BackupError, or StartError for a data folder of another account. Then the folder is as it was."""
    if not source.exists():
        raise BackupError(f"there is no backup at {source}", "polycast log backup TARGET --data DIR writes one")
    _check_data(data)
    with opened_backup(source) as (found, open_file):
        made = _make_room(data, found, disk)
        try:
            _copy(source, found, open_file, data / RESTORING, disk, report(Phase("restoring", found.total)))
            disk.rename(data / RESTORING, log_folder(data))
        except BaseException as error:
            shutil.rmtree(data if made else data / RESTORING, ignore_errors=True)
            if isinstance(error, OSError | EOFError):
                raise BackupError(
                    f"cannot restore to {data}: {getattr(error, 'strerror', None) or error}"
                ) from error
            raise
    return found


def _check_data(data: Path) -> None:
    check_owners(data)  # the owner of another folder could put links into it
    if (data / RESTORING).exists():
        raise BackupError(
            f"{data / RESTORING} is there, from a restore that did not end",
            "remove it, unless that restore still runs",
        )
    try:
        if any(data.iterdir()):
            raise BackupError(f"{data} is not empty", "--data DIR names a folder that is empty, or does not exist")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise BackupError(f"{data}: {error.strerror}") from error


def _make_room(data: Path, found: Manifest, disk: Disk) -> bool:
    """Whether the data folder is new."""
    made = not data.exists()
    try:
        make_folder(data / RESTORING, disk)
        free = disk.free_bytes(data)
    except OSError as error:
        raise BackupError(f"cannot write to {data}: {error.strerror}") from error
    if found.total > free:
        shutil.rmtree(data if made else data / RESTORING, ignore_errors=True)
        raise BackupError(f"the backup has {size_text(found.total)}, and {size_text(free)} are free in {data}")
    return made


def _copy(source: Path, found: Manifest, open_file: Opener, target: Path, disk: Disk, step: Step) -> None:
    for listed in found.files:
        path = target / listed.name
        make_folder(path.parent, disk)
        with open_file(listed) as file:
            check_digest(source, listed, write_file(path, listed.bytes, file, disk, step))
    for folder in {(target / listed.name).parent for listed in found.files}:
        disk.sync_folder(folder)
