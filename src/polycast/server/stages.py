"""Stages: rows that wait at the broker, under a batch's id and a name, until somebody commits them.

They belong to the broker, not to a connection: those who stage are not the one who commits. They are in memory
alone, so a broker that starts again has none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa

from polycast.dialects.hermod.session import HermodSettings
from polycast.model import Commit, Stage
from polycast.server.stage_frames import StageError

log = logging.getLogger("polycast.stages")

FRAME_BYTES = 4096
"""About what a frame takes besides its bytes."""


@dataclass(slots=True, eq=False)
class Staged:
    parts: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    touched: float = 0.0


class Stages:
    def __init__(self, settings: HermodSettings) -> None:
        self._settings = settings
        self._batches: dict[str, dict[str, Staged]] = {}
        self.size = 0
        """Of all that is staged, or committed and not on the disk yet."""

    def begin(self, event: Stage) -> Staged:
        """Where the rows of a frame will be added; there is room for them from here on."""
        if event.before == 0:
            self.drop(event.batch_id, (event.name,))
        staged = self._batches.get(event.batch_id, {}).get(event.name) or Staged()
        if event.before is not None and event.before != staged.rows:
            raise StageError(
                422,
                f"the stage {event.name!r} has {staged.rows:,} rows, and these are to follow {event.before:,}; "
                "stage all of them again, beginning with count 0",
            )
        self._charge(staged, len(event.data) + FRAME_BYTES)
        self._batches.setdefault(event.batch_id, {})[event.name] = staged
        return staged

    def add(self, staged: Staged, parts: list[pa.RecordBatch]) -> int:
        """How many rows there are now."""
        staged.parts += parts
        staged.rows += sum(part.num_rows for part in parts)
        staged.touched = time.monotonic()
        return staged.rows

    def _charge(self, staged: Staged, size: int) -> None:
        limit = self._settings.stage_bytes
        if self.size + size > limit:
            raise StageError(
                507,
                f"{self.size + size:,} bytes would be staged, the limit is {limit:,}; commit fewer rows at a time "
                "(maxOffsetsPerTrigger), or raise hermod.stage_bytes",
            )
        self.size += size
        staged.size += size
        staged.touched = time.monotonic()

    def find(self, event: Commit) -> list[pa.RecordBatch]:
        """All rows that a commit is about, in its order."""
        stages = self._batches.get(event.batch_id, {})
        for name in event.names:
            if name not in stages:
                raise StageError(
                    404,
                    f"there is no stage {name!r} of batch {event.batch_id!r}: the broker was started again, or "
                    f"nothing came for {self._settings.stage_seconds:g} s (hermod.stage_seconds); stage it again",
                )
        rows = sum(stages[name].rows for name in event.names)
        if event.count is not None and event.count != rows:
            words = f"{rows:,} rows are staged, and the commit is of {event.count:,}; stage them again"
            raise StageError(422, words)
        return [part for name in event.names for part in stages[name].parts]

    def drop(self, batch_id: str, names: Collection[str] | None = None) -> None:
        """Those with these names, or all."""
        self.release(self.take(batch_id, names))

    def take(self, batch_id: str, names: Collection[str] | None = None) -> int:
        """The same, but their room is not free yet: how much it is."""
        stages = self._batches.get(batch_id, {})
        gone = list(stages) if names is None else stages.keys() & names
        size = sum(stages.pop(name).size for name in gone)
        if not stages:
            self._batches.pop(batch_id, None)
        return size

    def release(self, size: int) -> None:
        self.size -= size

    def expire(self, but: Collection[str]) -> None:
        """What nobody has touched for too long, except in those batches."""
        limit = self._settings.stage_seconds
        oldest = time.monotonic() - limit
        for batch_id, stages in list(self._batches.items()):
            old = [name for name, staged in stages.items() if staged.touched < oldest]
            if old and batch_id not in but:
                rows = sum(stages[name].rows for name in old)
                log.warning("%s rows of batch %r are dropped: nobody committed them for %g s "
                            "(hermod.stage_seconds)", f"{rows:,}", batch_id, limit)  # fmt: skip
                self.drop(batch_id, old)
