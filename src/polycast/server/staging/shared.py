"""Stages of a cluster: the frames are messages of the stream, and every node knows their stream sequences.

A stage survives the loss of any node: every node can commit it. A commit names its frames, and every node reads
their rows from the stream when it applies the commit. So nodes hold no staged rows, and need not agree on what is
staged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from polycast.broker import ClusterSequencer, StagedFrame
from polycast.errors import PolycastError
from polycast.log.times import MICROS
from polycast.log.write.bulk import from_stream, to_stream
from polycast.model import BatchKey, Commit, Stage
from polycast.server.staging.arrow_frames import StageError
from polycast.server.staging.stages import Stages, check_stages

log = logging.getLogger("polycast.stages")

AGAIN_SECONDS = 0.2


@dataclass(slots=True, eq=False)
class SharedStage:
    batch: BatchKey
    micros: int
    rows: int = 0
    size: int = 0
    frames: list[list[int]] = field(default_factory=list)


class LoadedRows(NamedTuple):
    """The rows of a commit."""

    parts: list[pa.RecordBatch]
    frames: list[list[int]]
    size: int


class SharedStages:
    def __init__(
        self,
        stages: Stages,
        cluster: ClusterSequencer,
        is_published: Callable[[BatchKey], bool],
        now: Callable[[], int],
    ) -> None:
        """`stages`: rows staged at this node, while they are checked. `now`: the time of the last applied message,
        in microseconds."""
        self._stages = stages
        self._settings = stages.settings
        self._cluster = cluster
        self._is_published = is_published
        self._now = now
        self._batches: dict[BatchKey, dict[str, SharedStage]] = {}
        self._order: dict[SharedStage, None] = {}
        """Stages in the order of their first frames."""
        cluster.attach_stages(self._note, self._finish, self._first)

    # -- frames of the stream ----------------------------------------------------------------------------

    def _note(self, frame: StagedFrame) -> None:
        """Notes a frame of the stream. Ignores a frame that does not continue the rows of its stage."""
        if frame.before == 0 or frame.name is None:
            self.forget(frame.batch, None if frame.name is None else (frame.name,))
        if frame.dropped or frame.name is None or self._is_published(frame.batch):
            return
        stages = self._batches.setdefault(frame.batch, {})
        if frame.before == 0:
            stages[frame.name] = stage = SharedStage(frame.batch, self._now())
            self._order[stage] = None
        stage = stages.get(frame.name) or SharedStage(frame.batch, 0)
        if stage.rows == frame.before:
            stage.frames.append(list(frame.sequences))
            stage.rows += frame.rows
            stage.size += len(frame.data)
            stage.micros = self._now()

    def _finish(self, batch: BatchKey) -> None:
        """Drops the stages of a published batch."""
        self.forget(batch)
        self._stages.drop(batch)

    def forget(self, batch: BatchKey, names: Collection[str] | None = None) -> None:
        """Forgets the stages with these names, or all stages of the batch."""
        stages = self._batches.get(batch, {})
        for name in list(stages) if names is None else stages.keys() & names:
            del self._order[stages.pop(name)]
        if not stages:
            self._batches.pop(batch, None)

    def expire(self) -> None:
        """Forgets old stages, by the time of the stream."""
        oldest = self._now() - int(self._settings.stage_seconds * MICROS)
        for batch, stages in list(self._batches.items()):
            self.forget(batch, [name for name, stage in stages.items() if stage.micros < oldest])

    def _first(self) -> int:
        """The stream sequence of the oldest staged frame; 0: none."""
        oldest = next(iter(self._order), None)
        return oldest.frames[0][0] if oldest and oldest.frames else 0

    # -- events of connections ----------------------------------------------------------------------------

    async def store(self, event: Stage, before: int, parts: list[pa.RecordBatch]) -> None:
        """Returns when the stream has the rows, and this node has applied them."""
        rows = sum(part.num_rows for part in parts)
        data = await asyncio.to_thread(to_stream, parts) if rows else b""
        if rows or not before:
            await self._stage(StagedFrame(event.batch, event.name, before, rows, data))
        stage = self._batches.get(event.batch, {}).get(event.name)
        if (stage is None or stage.rows < before + rows) and not self._is_published(event.batch):
            raise StageError(404, f"the stage {event.name!r} was dropped while these rows came; stage it again")

    def drop(self, batch: BatchKey, names: Iterable[str] | None) -> None:
        """Drops the stages at all nodes."""
        for name in (None,) if names is None else names:
            self._cluster.stage(StagedFrame(batch, name, 0, 0, b"", True), lambda: None)

    async def _stage(self, frame: StagedFrame) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cluster.stage(frame, lambda: None if done.done() else done.set_result(None))
        await done

    # -- committing --------------------------------------------------------------------------------------

    async def load(self, event: Commit) -> LoadedRows:
        """The rows of all stages of a commit. Raises StageError if a stage or rows are missing, or if there are
        too many frames."""
        await self._reach_end(set(event.names) <= self._batches.get(event.batch, {}).keys())
        stages = self._batches.get(event.batch, {})
        check_stages(event, {name: stage.rows for name, stage in stages.items()}, self._settings.stage_seconds)
        chosen = [stages[name] for name in event.names]
        frames = [sequences for stage in chosen for sequences in stage.frames]
        self._check_frames(frames)
        parts: list[pa.RecordBatch] = []
        for sequences in frames:
            parts += await self._read(sequences)
        return LoadedRows(parts, frames, sum(stage.size for stage in chosen))

    def _check_frames(self, frames: list[list[int]]) -> None:
        """Before they are read. All nodes would skip a commit that is too large for one message."""
        found, limit = sum(map(len, frames)), self._cluster.commit_messages
        if found > limit:
            raise StageError(
                422,
                f"the frames of the batch are {found:,} messages of the stream, the limit is {limit:,}; stage "
                "larger frames, of a few MiB each, or commit fewer rows at a time (maxOffsetsPerTrigger)",
            )

    async def _reach_end(self, known: bool) -> None:
        """Applies the stream up to its end: another node may have staged rows a moment ago, or begun a stage anew.

        Without servers, the commit of known stages waits for them, as it would for their frames. Other stages may
        exist nowhere. The error is not 503, after which clients wait for the end of the connection."""
        while True:
            try:
                await self._cluster.reach_end()
                return
            except PolycastError as error:
                if not known:
                    raise StageError(500, f"the servers of the cluster do not respond: {error}") from error
            await asyncio.sleep(AGAIN_SECONDS)

    async def _read(self, sequences: list[int]) -> list[pa.RecordBatch]:
        try:
            frame = await self._cluster.read_frame(sequences)
        except PolycastError as error:
            raise StageError(404, f"{error}; stage the rows again") from error
        return await asyncio.to_thread(from_stream, frame.data) if frame.rows else []
