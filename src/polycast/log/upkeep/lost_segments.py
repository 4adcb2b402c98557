"""The record of a hole: offsets between two segments that no file has, because a segment is gone.

It is the file `quarantine/NAME.missing.lost.json`, named by the first lost offset: a record as salvage writes it,
without a damaged file beside it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from msgspec.structs import replace

from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import file_name
from polycast.log.files.format import LOST_TO_DAMAGE, Gap
from polycast.log.files.quarantine import LOST, QUARANTINE, write_lost

log = logging.getLogger("polycast.log")

HOLE = ".missing"


def record_hole(folder: Path, hole: Gap, disk: Disk = DISK) -> None:
    """Raises OSError."""
    record = folder / QUARANTINE / file_name(hole.first, HOLE)
    record.parent.mkdir(exist_ok=True)
    reason = f"{LOST_TO_DAMAGE}{QUARANTINE}/{record.name}{LOST}: {hole.reason}"
    write_lost(record, [replace(hole, reason=reason)], disk)
    log.critical("%s: offsets from %s up to %s are lost: %s", folder, f"{hole.first:,}", f"{hole.next:,}",
                 hole.reason)  # fmt: skip
