"""Permissions of the data folder.

The umask of the process decides, so that no file is forgotten, and the JVM of Spark and its Python workers inherit
it. The broker takes the umask from `log.access`, and gives the data folder and `DIR/log` the matching mode. Every
other process takes it from the mode of `DIR/log`, so that one setting is valid for all of them. A stricter umask
of the user stays.

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
FOLDERS = frozenset({"log", "stages", "checkpoints", "lake", "deliveries", "index", "quality"})
OURS = FOLDERS | {"tokens.json", "tokens.new", "lost+found"}
"""The only names in a data folder that belongs to Polycast alone; file systems create `lost+found`."""


def restrict(umask: int) -> int:
    """Adds to the umask of this process, and returns the result."""
    restricted = os.umask(OTHERS) | umask
    os.umask(restricted)
    return restricted


def umask_of(data: Path) -> int:
    """The umask of the broker that created the log; without a log, that of `owner`."""
    try:
        return ~log_folder(data).stat().st_mode & OTHERS
    except OSError:
        return UMASKS[OWNER]


def check_owner(path: Path, found: os.stat_result) -> None:
    """Raises StartError if neither this account nor root owns the path: its content cannot be trusted."""
    if found.st_uid not in (os.geteuid(), ROOT):
        hint = "run the command as that account, name another folder with --data, or change the owner with chown"
        raise StartError(f"{path} belongs to another account, with the uid {found.st_uid}", hint)


def check_owners(data: Path) -> None:
    """Checks an existing data folder, its log and its stages; of a symbolic link, both ends."""
    for folder in (data, log_folder(data), data / "stages"):
        for look in (folder.lstat, folder.stat):
            try:
                found = look()
            except OSError:
                continue
            shared = folder == data and bool(found.st_mode & stat.S_ISVTX)  # such as /tmp
            if not shared:
                check_owner(folder, found)


def protect(data: Path, umask: int) -> None:
    """Gives existing folders the mode of new ones.

    A data folder with other files keeps its mode: it may be a home, or /tmp. The folders of Polycast in it get
    theirs. Folders and symbolic links of other accounts are skipped: a link could lead anywhere.
    """
    for folder in (data, *(data / name for name in sorted(FOLDERS))):
        try:
            if is_ours(data) if folder == data else _is_of_this_account(folder):
                _set_mode(folder, ANYBODY & ~umask)
        except OSError:  # missing; `open_to_others` reports modes that are too open
            continue


def _is_of_this_account(folder: Path) -> bool:
    return folder.lstat().st_uid == folder.stat().st_uid == os.geteuid()


def _set_mode(folder: Path, wanted: int) -> None:
    found = stat.S_IMODE(folder.stat().st_mode)
    mode = found & ANYBODY
    if mode != wanted:
        folder.chmod(found & ~ANYBODY | wanted)
        log.warning("%s: the mode was %04o and is now %04o (log.access)", folder, mode, wanted)


def is_ours(data: Path) -> bool:
    """Whether the folder has no files of others, and is not shared like /tmp, which may be empty."""
    found = data.stat()
    own = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    return own and all(path.name in OURS for path in data.iterdir())


def open_to_others(path: Path, umask: int) -> int:
    """The mode of a path that allows more than that umask; otherwise 0, also if the path does not exist."""
    try:
        mode = path.stat().st_mode & ANYBODY
    except (OSError, ValueError):  # not a valid path
        return 0
    return mode if mode & umask & OTHERS else 0
