"""Who may read what is under the data folder.

The umask of the process decides: no file can be forgotten, and Spark's JVM and its Python workers inherit it. The
broker takes it from `log.access`, and gives the data folder and `DIR/log` the mode that goes with it. Every other
process takes it from the mode of `DIR/log`, so one setting holds for all of them. A umask of the user that is
stricter stays.

    log.access    umask    folders    files
    owner         077      0700       0600
    group         027      0750       0640
    all           022      0755       0644
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from polycast.errors import StartError
from polycast.log.files.folder import log_folder

log = logging.getLogger("polycast.log")

OWNER = "owner"
UMASKS = {OWNER: 0o077, "group": 0o027, "all": 0o022}
"""By `log.access`."""
OTHERS, ANYBODY = 0o077, 0o777
ROOT = 0
FOLDERS = frozenset({"log", "checkpoints", "lake", "deliveries", "index", "quality"})
OURS = FOLDERS | {"tokens.json", "tokens.new", "lost+found"}
"""What may be in a data folder that belongs to Polycast alone; the last one comes with the file system."""


def restrict(umask: int) -> int:
    """Adds to the umask of this process, and returns what came of it."""
    restricted = os.umask(OTHERS) | umask
    os.umask(restricted)
    return restricted


def umask_of(data: Path) -> int:
    """What the broker has used there; without a log, the one for the owner alone."""
    try:
        return ~log_folder(data).stat().st_mode & OTHERS
    except OSError:
        return UMASKS[OWNER]


def check_owner(path: Path, found: os.stat_result) -> None:
    """StartError: it belongs to another account than this one and root, so what it holds cannot be trusted."""
    if found.st_uid not in (os.geteuid(), ROOT):
        hint = "run the command as that account, name another folder with --data, or change the owner with chown"
        raise StartError(f"{path} belongs to another account, with the uid {found.st_uid}", hint)


def check_owners(data: Path) -> None:
    """The same for a data folder and its log, where they are there already; links count by both ends."""
    for folder in (data, log_folder(data)):
        for look in (folder.lstat, folder.stat):
            try:
                found = look()
            except OSError:
                continue
            shared = folder == data and bool(found.st_mode & stat.S_ISVTX)  # such as /tmp
            if not shared:
                check_owner(folder, found)


def protect(data: Path, umask: int) -> None:
    """Gives folders that are there already the mode that new ones get.

    A data folder that holds files of others is left as it is: it may be a home, or /tmp. Polycast's own folders in
    it are closed all the same.
    """
    for folder in (data, *(data / name for name in sorted(FOLDERS))):
        try:
            if folder != data or is_ours(data):
                _set_mode(folder, ANYBODY & ~umask)
        except OSError:  # not there, or of another account; what is too open is told elsewhere
            continue


def _set_mode(folder: Path, wanted: int) -> None:
    found = stat.S_IMODE(folder.stat().st_mode)
    mode = found & ANYBODY
    if mode != wanted:
        folder.chmod(found & ~ANYBODY | wanted)
        log.warning("%s: the mode was %04o and is now %04o (log.access)", folder, mode, wanted)


def is_ours(data: Path) -> bool:
    """Whether nobody else keeps anything there."""
    return data.stat().st_uid == os.geteuid() and all(path.name in OURS for path in data.iterdir())


def open_to_others(path: Path, umask: int) -> int:
    """The mode of a file or folder that allows more than that; 0 if it does not, or is not there."""
    try:
        mode = path.stat().st_mode & ANYBODY
    except (OSError, ValueError):  # no file has such a name
        return 0
    return mode if mode & umask & OTHERS else 0
