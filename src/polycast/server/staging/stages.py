"""Stages: rows that wait at the broker, under a batch id and a name, until their owner commits them.

A stage belongs to an identity, not to a connection: one connection may stage and another commit. Stages are in
memory, and in the spool, so that they survive a restart of the broker.

Every stage is counted from its first byte, with its name and the memory that each row needs for a commit: against
`hermod.stage_bytes`, against the share of its owner, and in the memory budget of the broker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from polycast.dialects.settings import StagingSettings
from polycast.log.write.entry import ROW_BYTES
from polycast.model import BatchKey, Commit, Stage
from polycast.server.staging.arrow_frames import StageError
from polycast.server.staging.spool import FrameHead, Spool, StageFile

log = logging.getLogger("polycast.stages")

STAGE_BYTES = 2048
"""The estimated memory of a stage without rows: its id, its name, and entries in tables."""
PART_BYTES = 4096
"""The estimated memory of a record batch beside its columns."""


@dataclass(slots=True, eq=False)
class Staged:
    file: StageFile
    parts: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    touched: float = field(default_factory=time.monotonic)
    gone: bool = False
    held: bool = False
    """A commit uses this stage: its memory counts until the commit ends, even if the stage is dropped."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a frame is added, so that the file has the frames in the order of the rows."""


@dataclass(slots=True)
class Share:
    """The stages and bytes of one identity."""

    size: int = 0
    stages: int = 0


class Stages:
    def __init__(self, settings: StagingSettings, spool: Spool) -> None:
        self.settings = settings
        self._spool = spool
        self._batches: dict[BatchKey, dict[str, Staged]] = {}
        self._shares: dict[str, Share] = {}
        self.size = 0
        """Bytes of all rows that are staged, are being staged, or are committed and not durable yet."""

    # -- adding ------------------------------------------------------------------------------------------

    def begin(self, event: Stage) -> tuple[Staged, int]:
        """The stage that the rows of a frame will be added to, and the bytes reserved for the frame until it is
        read."""
        if event.before == 0:
            self.drop(event.batch, (event.name,))
        size = len(event.data) + PART_BYTES
        try:
            staged = self._batches.get(event.batch, {}).get(event.name) or self._create(event)
            _check_preceding_rows(event, staged.rows)
            self._charge(event.batch.owner, size)
        except StageError:
            self.drop(event.batch, (event.name,))
            raise
        staged.touched = time.monotonic()
        return staged, size

    def abandon(self, event: Stage, staged: Staged) -> None:
        """Drops a stage after a refused frame. A stage of the same name that began since is another stage."""
        if not staged.gone:
            self.drop(event.batch, (event.name,))

    def _create(self, event: Stage) -> Staged:
        owner, limit = event.batch.owner, self.settings.identity_stages
        share = self._shares.get(owner, Share())
        if share.stages >= limit:
            raise StageError(
                507,
                f"there are {share.stages:,} stages of this identity, the limit is {limit:,}; commit or abort "
                "some, or raise hermod.identity_stages",
            )
        self._charge(owner, STAGE_BYTES)
        self._shares[owner].stages += 1
        staged = self._batches.setdefault(event.batch, {})[event.name] = Staged(
            self._spool.create(), size=STAGE_BYTES
        )
        return staged

    def add(self, event: Stage, staged: Staged, parts: list[pa.RecordBatch]) -> int:
        """The number of rows in the stage, with these."""
        if staged.gone:
            raise StageError(404, f"the stage {event.name!r} was dropped while these rows came; stage it again")
        size = size_of(len(event.data), parts)
        try:
            _check_preceding_rows(event, staged.rows)
            self._charge(event.batch.owner, size)
        except StageError:
            self.abandon(event, staged)
            raise
        return add_rows(staged, parts, size)

    async def store(self, event: Stage, staged: Staged, before: int) -> None:
        """Returns when the rows of the frame, which follow `before` others, are durable.

        A frame without rows adds no bytes, in memory or on disk.
        """
        head = FrameHead(*event.batch, event.name, before)
        data = event.data if staged.rows > before else b""
        try:
            if data or not staged.file.exists:
                await asyncio.wrap_future(self._spool.append(staged.file, head, data))
        except OSError as error:
            log.error("%s cannot be written: %s", staged.file.path, error.strerror)
            raise StageError(500, f"not staged: {error.strerror}; make room on the broker's disk") from error

    def restore(self, batch: BatchKey, name: str, staged: Staged) -> None:
        """Adds a stage of an earlier run, past any limit. A later stage of the same name replaces it."""
        self.drop(batch, (name,))
        share = self._shares.setdefault(batch.owner, Share())
        share.size += staged.size
        share.stages += 1
        self.size += staged.size
        self._batches.setdefault(batch, {})[name] = staged

    def _charge(self, owner: str, size: int) -> None:
        """Reserves bytes, or raises StageError."""
        share = self._shares.get(owner, Share())
        for before, limit, setting in (
            (share.size, self.settings.identity_stage_bytes, "hermod.identity_stage_bytes"),
            (self.size, self.settings.stage_bytes, "hermod.stage_bytes"),
        ):
            if before + size > limit:
                raise StageError(
                    507,
                    f"{before + size:,} bytes would be staged, the limit is {limit:,}; commit fewer rows at a "
                    f"time (maxOffsetsPerTrigger), or raise {setting}",
                )
        self.size += size
        share.size += size
        self._shares[owner] = share

    # -- committing --------------------------------------------------------------------------------------

    def hold(self, event: Commit) -> list[Staged]:
        """The stages of a commit, in its order. `unhold` must follow."""
        stages = self._batches.get(event.batch, {})
        check_stages(event, {name: staged.rows for name, staged in stages.items()}, self.settings.stage_seconds)
        held = [stages[name] for name in event.names]
        for staged in held:
            staged.held, staged.touched = True, time.monotonic()
        return held

    def unhold(self, held: list[Staged]) -> int:
        """Ends the commit. Returns the bytes of stages that were published or dropped, to be released."""
        for staged in held:
            staged.held = False
        return sum(staged.size for staged in held if staged.gone)

    # -- dropping ----------------------------------------------------------------------------------------

    def drop(self, batch: BatchKey, names: Collection[str] | None = None) -> None:
        """Drops the stages with these names, or all stages of the batch."""
        self.release(batch.owner, self.take(batch, names))

    def take(self, batch: BatchKey, names: Collection[str] | None = None) -> int:
        """Drops stages, and returns their bytes, to be released. Leaves out bytes that a commit holds."""
        stages = self._batches.get(batch, {})
        gone = [stages.pop(name) for name in (list(stages) if names is None else stages.keys() & names)]
        for staged in gone:
            staged.gone = True
        self._spool.remove(staged.file for staged in gone)
        if gone:
            self._shares[batch.owner].stages -= len(gone)
        if not stages:
            self._batches.pop(batch, None)
        return sum(staged.size for staged in gone if not staged.held)

    def release(self, owner: str, size: int) -> None:
        """Ends a reservation of `_charge`."""
        if size:
            share = self._shares[owner]
            self.size -= size
            share.size -= size
            if not share.size:
                del self._shares[owner]

    def expire(self, but: Collection[BatchKey]) -> None:
        """Drops stages that were idle for too long, except those of the given batches."""
        limit = self.settings.stage_seconds
        oldest = time.monotonic() - limit
        for batch, stages in list(self._batches.items()):
            old = [name for name, staged in stages.items() if staged.touched < oldest]
            if old and batch not in but:
                rows = sum(stages[name].rows for name in old)
                log.warning("%s rows of batch %r of %s are dropped: they were not committed for %g s "
                            "(hermod.stage_seconds)", f"{rows:,}", batch.batch_id, batch.owner, limit)  # fmt: skip
                self.drop(batch, old)

    def stop(self) -> None:
        """Finishes the work of the spool. The stages stay on disk."""
        self._spool.stop()


def check_stages(event: Commit, rows: Mapping[str, int], stage_seconds: float) -> None:
    """Raises StageError if the commit names an unknown stage, or another number of rows. `rows`: of each stage of
    the batch."""
    for name in event.names:
        if name not in rows:
            raise StageError(
                404,
                f"there is no stage {name!r} of batch {event.batch.batch_id!r}: nothing came for "
                f"{stage_seconds:g} s (hermod.stage_seconds), its file was damaged, or another identity staged "
                "it; stage it again",
            )
    found = sum(rows[name] for name in event.names)
    if event.count is not None and event.count != found:
        words = f"{found:,} rows are staged, and the commit is of {event.count:,}; stage them again"
        raise StageError(422, words)


def size_of(frame_bytes: int, parts: list[pa.RecordBatch]) -> int:
    """The bytes that the rows of a frame count as."""
    rows = sum(part.num_rows for part in parts)
    return frame_bytes + PART_BYTES * len(parts) + ROW_BYTES * rows if parts else 0


def add_rows(staged: Staged, parts: list[pa.RecordBatch], size: int) -> int:
    """Adds rows to a stage; returns the number of its rows."""
    staged.parts += parts
    staged.rows += sum(part.num_rows for part in parts)
    staged.size += size
    staged.touched = time.monotonic()
    return staged.rows


def _check_preceding_rows(event: Stage, rows: int) -> None:
    """Refuses a frame that names another number of preceding rows than the stage has."""
    if event.before is not None and event.before != rows:
        raise StageError(
            422,
            f"the stage {event.name!r} has {rows:,} rows, but the frame has count {event.before:,}; "
            "stage all rows again, from count 0",
        )
