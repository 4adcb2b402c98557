"""Stages: rows that wait at the broker, under a batch's id and a name, until their owner commits them.

They belong to an identity, not to a connection: the connections that stage are not the one that commits. They are
in memory alone, so a broker that starts again has none.

Every stage is counted from its first byte, with its name and what each row takes when it is committed: against
`hermod.stage_bytes`, against the share of its owner, and in the memory budget of the broker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa

from polycast.dialects.settings import StagingSettings
from polycast.log.write.entry import ROW_BYTES
from polycast.model import BatchKey, Commit, Stage
from polycast.server.staging.arrow_frames import StageError

log = logging.getLogger("polycast.stages")

STAGE_BYTES = 2048
"""About what a stage takes before it has any row: its id, its name, and entries in tables."""
PART_BYTES = 4096
"""About what a record batch takes besides its columns."""


@dataclass(slots=True, eq=False)
class Staged:
    parts: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    touched: float = field(default_factory=time.monotonic)
    gone: bool = False
    held: bool = False
    """A commit works on this stage: its memory counts until the commit ends, even if the stage is dropped."""


@dataclass(slots=True)
class Share:
    """What one identity has."""

    size: int = 0
    stages: int = 0


class Stages:
    def __init__(self, settings: StagingSettings) -> None:
        self.settings = settings
        self._batches: dict[BatchKey, dict[str, Staged]] = {}
        self._shares: dict[str, Share] = {}
        self.size = 0
        """Of all that is staged or being staged, or committed and not on the disk yet."""

    # -- adding ------------------------------------------------------------------------------------------

    def begin(self, event: Stage) -> tuple[Staged, int]:
        """Where the rows of a frame will be added, and the room that the frame takes until it is read."""
        if event.before == 0:
            self.drop(event.batch, (event.name,))
        size = len(event.data) + PART_BYTES
        try:
            staged = self._batches.get(event.batch, {}).get(event.name) or self._create(event)
            _check_place(event, staged.rows)
            self._charge(event.batch.owner, size)
        except StageError:
            self.drop(event.batch, (event.name,))
            raise
        staged.touched = time.monotonic()
        return staged, size

    def abandon(self, event: Stage, staged: Staged) -> None:
        """A frame of this stage is not taken; a stage of the same name that has begun since is another one."""
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
        staged = self._batches.setdefault(event.batch, {})[event.name] = Staged(size=STAGE_BYTES)
        return staged

    def add(self, event: Stage, staged: Staged, parts: list[pa.RecordBatch]) -> int:
        """How many rows there are now."""
        if staged.gone:
            raise StageError(404, f"the stage {event.name!r} was dropped while these rows came; stage it again")
        rows = sum(part.num_rows for part in parts)
        size = len(event.data) + PART_BYTES * len(parts) + ROW_BYTES * rows if parts else 0
        try:
            _check_place(event, staged.rows)
            self._charge(event.batch.owner, size)
        except StageError:
            self.abandon(event, staged)
            raise
        staged.size += size
        staged.parts += parts
        staged.rows += rows
        staged.touched = time.monotonic()
        return staged.rows

    def _charge(self, owner: str, size: int) -> None:
        """There is room for that, from here on."""
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
        """The stages of a commit, in its order. Must be followed by `unhold`."""
        stages = self._batches.get(event.batch, {})
        for name in event.names:
            if name not in stages:
                raise StageError(
                    404,
                    f"there is no stage {name!r} of batch {event.batch.batch_id!r}: the broker was started again, "
                    f"nothing came for {self.settings.stage_seconds:g} s (hermod.stage_seconds), or another "
                    "identity staged it; stage it again",
                )
        rows = sum(stages[name].rows for name in event.names)
        if event.count is not None and event.count != rows:
            words = f"{rows:,} rows are staged, and the commit is of {event.count:,}; stage them again"
            raise StageError(422, words)
        held = [stages[name] for name in event.names]
        for staged in held:
            staged.held = True
        return held

    def unhold(self, held: list[Staged]) -> int:
        """After the commit: the bytes of those stages that were published or dropped, to be released."""
        for staged in held:
            staged.held = False
        return sum(staged.size for staged in held if staged.gone)

    # -- dropping ----------------------------------------------------------------------------------------

    def drop(self, batch: BatchKey, names: Collection[str] | None = None) -> None:
        """Those with these names, or all."""
        self.release(batch.owner, self.take(batch, names))

    def take(self, batch: BatchKey, names: Collection[str] | None = None) -> int:
        """Drops stages, and returns their bytes, to be released. Bytes that a commit holds are not among them."""
        stages = self._batches.get(batch, {})
        gone = [stages.pop(name) for name in (list(stages) if names is None else stages.keys() & names)]
        for staged in gone:
            staged.gone = True
        if gone:
            self._shares[batch.owner].stages -= len(gone)
        if not stages:
            self._batches.pop(batch, None)
        return sum(staged.size for staged in gone if not staged.held)

    def release(self, owner: str, size: int) -> None:
        """That room is free again."""
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


def _check_place(event: Stage, rows: int) -> None:
    """A frame that says what it follows is added behind that, and nowhere else."""
    if event.before is not None and event.before != rows:
        raise StageError(
            422,
            f"the stage {event.name!r} has {rows:,} rows, and these are to follow {event.before:,}; "
            "stage all of them again, beginning with count 0",
        )
