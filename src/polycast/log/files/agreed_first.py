"""The first offset of a cluster, in the file `first` of a node's log.

All nodes agree on it, but each removes whole segments: a node may have older messages for a while. Readers start
here, also those of other processes, so that the log begins at the same offset at all nodes.
"""

from __future__ import annotations

from pathlib import Path

from polycast.log.files.disk import Disk

NAME = "first"


def write_agreed_first(folder: Path, offset: int, disk: Disk) -> None:
    disk.replace(folder / NAME, b"%d\n" % offset)


def read_agreed_first(folder: Path) -> int:
    """0 for the log of a single broker. An unreadable file is ignored: the node writes it again."""
    try:
        return max(0, int((folder / NAME).read_bytes()))
    except (OSError, ValueError):
        return 0
