"""Loads the stages of an earlier run, which then wait for their commit again.

Drops stages whose batch was published. Frames are checked again, with the current limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from polycast.log.read.work import finish
from polycast.model import BatchKey, Limits
from polycast.server.staging.arrow_frames import StageError, read_parts
from polycast.server.staging.spool import Frame, Spool, StageFile
from polycast.server.staging.stages import STAGE_BYTES, Staged, Stages, add_rows, size_of

log = logging.getLogger("polycast.stages")


def recover_stages(stages: Stages, spool: Spool, limits: Limits, is_published: Callable[[BatchKey], bool]) -> None:
    rows = count = 0
    for file, frames in spool.load():
        head = frames[0].head
        if is_published(head.batch):
            file.remove()
            continue
        try:
            staged = _to_staged(file, frames, limits)
        except StageError as error:
            log.warning("%s is removed, and its stage is lost: %s", file.path, error)
            file.remove()
            continue
        stages.restore(head.batch, head.name, staged)
        rows, count = rows + staged.rows, count + 1
    if count:
        log.info("%s rows in %s stages of an earlier run wait for their commit", f"{rows:,}", f"{count:,}")


def _to_staged(file: StageFile, frames: list[Frame], limits: Limits) -> Staged:
    staged = Staged(file, size=STAGE_BYTES)
    for frame in frames:
        if frame.head.before != staged.rows:
            raise StageError(422, f"a frame follows {frame.head.before:,} rows, and there are {staged.rows:,}")
        parts = finish(read_parts(frame.data, staged.rows, limits)) if frame.data else []
        add_rows(staged, parts, size_of(len(frame.data), parts))
    return staged
