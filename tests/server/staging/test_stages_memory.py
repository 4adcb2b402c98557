"""What stages take of the broker's memory: all of it is counted, and nothing small becomes large."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from kit.staged import numbered, to_frame, to_stream
from polycast.dialects.hermod.encoders import to_error, to_ok
from polycast.dialects.hermod.settings import HermodSettings
from polycast.log.read.work import finish
from polycast.log.write.entry import ROW_BYTES
from polycast.model import BatchKey, Commit, Limits, Stage
from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.staging.arrow_frames import MERGED_PARTS, StageError, read_frame
from polycast.server.staging.spool import Spool
from polycast.server.staging.stages import STAGE_BYTES, Stages


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


ALICE, BOB = BatchKey("alice", "night"), BatchKey("bob", "night")


def frame_of(batch: BatchKey, name: str, data: bytes, before: int | None = None) -> Stage:
    return Stage(batch, name, data, "", before, to_ok, to_error)


def put(stages: Stages, batch: BatchKey, name: str, data: bytes, before: int | None = None) -> int:
    """What a connection does with a frame."""
    event = frame_of(batch, name, data, before)
    staged, size = stages.begin(event)
    stages.release(batch.owner, size)
    return stages.add(event, staged, finish(read_frame(event, staged.rows, Limits())))


def settings_of(**values: int) -> HermodSettings:
    return HermodSettings(**values)  # type: ignore[arg-type]


# -- what is counted --------------------------------------------------------------------------------------


def test_a_frame_counts_before_it_is_read(spool: Spool) -> None:
    stages = Stages(settings_of(stage_bytes=100_000), spool)
    stages.begin(frame_of(ALICE, "s", bytes(90_000)))
    assert stages.size > 90_000
    with pytest.raises(StageError, match=r"hermod\.stage_bytes"):
        stages.begin(frame_of(BOB, "s", bytes(10_000)))


def test_rows_count_with_what_a_commit_makes_of_them(spool: Spool) -> None:
    stages = Stages(HermodSettings(), spool)
    data = to_frame([("", b"")] * 10_000)
    assert put(stages, ALICE, "s", data) == 10_000
    assert stages.size > len(data) + ROW_BYTES * 10_000


def test_a_stage_without_rows_counts_and_holds_no_bytes(spool: Spool) -> None:
    stages = Stages(HermodSettings(), spool)
    for number in range(100):
        assert put(stages, ALICE, f"{number}", to_frame([])) == 0
    assert stages.size == 100 * STAGE_BYTES
    for _ in range(100):
        put(stages, ALICE, "0", to_frame([]))
    assert stages.size == 100 * STAGE_BYTES


def test_everything_is_free_again_in_the_end(spool: Spool) -> None:
    stages = Stages(settings_of(identity_stages=3, identity_stage_bytes=50_000), spool)
    frame = to_frame(numbered("t", 10))
    for batch in (ALICE, BOB):
        for name in ("a", "b", "c"):
            put(stages, batch, name, frame)
        with pytest.raises(StageError, match=r"3 stages .* limit is 3.*hermod\.identity_stages"):
            stages.begin(frame_of(batch, "d", frame))
        with pytest.raises(StageError, match=r"limit is 50,000.*hermod\.identity_stage_bytes"):
            stages.begin(frame_of(batch, "c", bytes(50_000)))
    stages.drop(ALICE, ("a", "unknown"))
    put(stages, ALICE, "a", frame)
    stages.release(BOB.owner, stages.take(BOB))
    stages.drop(ALICE)
    assert stages.size == 0
    put(stages, BOB, "a", frame)
    stages.drop(BOB)
    assert stages.size == 0 and not stages._shares and not stages._batches


@pytest.mark.parametrize("before", [None, 0])
def test_a_stage_that_goes_while_a_frame_is_read(spool: Spool, before: int | None) -> None:
    """The frame belongs to nothing any more; what was counted for it is not lost."""
    stages = Stages(HermodSettings(), spool)
    event = frame_of(ALICE, "s", to_frame(numbered("t", 5)), before)
    staged, size = stages.begin(event)
    parts = finish(read_frame(event, 0, Limits()))
    stages.drop(ALICE, ("s",))
    assert stages.size == size
    stages.release(ALICE.owner, size)
    with pytest.raises(StageError, match="was dropped while these rows came"):
        stages.add(event, staged, parts)
    assert stages.size == 0


def test_a_frame_of_a_stage_that_is_gone_does_not_cost_the_next_one(spool: Spool) -> None:
    stages = Stages(HermodSettings(), spool)
    old = frame_of(ALICE, "s", to_frame(numbered("t", 5)), 0)
    staged, size = stages.begin(old)
    put(stages, ALICE, "s", to_frame(numbered("t", 7)), 0)
    stages.release(ALICE.owner, size)
    with pytest.raises(StageError, match="was dropped"):
        stages.add(old, staged, finish(read_frame(old, 0, Limits())))
    stages.abandon(old, staged)
    assert put(stages, ALICE, "s", to_frame([]), 7) == 7


def test_two_connections_that_bring_the_same_rows(spool: Spool) -> None:
    """Both were right when they began; one of them is when it ends."""
    stages = Stages(HermodSettings(), spool)
    put(stages, ALICE, "s", to_frame(numbered("t", 5)))
    events = [frame_of(ALICE, "s", to_frame(numbered("t", 5)), 5) for _ in range(2)]
    begun = [stages.begin(event) for event in events]
    assert stages.add(events[0], begun[0][0], finish(read_frame(events[0], 5, Limits()))) == 10
    with pytest.raises(StageError, match="has 10 rows, but the frame has count 5"):
        stages.add(events[1], begun[1][0], finish(read_frame(events[1], 5, Limits())))


def test_a_stage_being_committed_does_not_expire(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = Stages(HermodSettings(stage_seconds=0.001), spool)
    put(stages, ALICE, "s", to_frame([]))
    put(stages, BOB, "s", to_frame([]))
    later = time.monotonic() + 1
    monkeypatch.setattr("polycast.server.staging.stages.time.monotonic", lambda: later)
    stages.expire(but={ALICE})
    assert stages.size == STAGE_BYTES
    stages.expire(but=())
    assert stages.size == 0


@pytest.mark.parametrize("restage", [False, True])
def test_the_stages_of_a_commit_count_until_it_ends(spool: Spool, restage: bool) -> None:
    """Even if they are dropped or restarted meanwhile: otherwise commits and aborts would evade every limit."""
    stages = Stages(HermodSettings(), spool)
    put(stages, ALICE, "s", to_frame(numbered("t", 1000)))
    put(stages, ALICE, "other", to_frame([]))
    size = stages.size - STAGE_BYTES
    held = stages.hold(Commit(ALICE, ("s",), 1000, to_ok, Mock(), to_error))
    if restage:
        put(stages, ALICE, "s", to_frame([]), before=0)
    else:
        stages.drop(ALICE)
    assert stages.size == size + 2 * STAGE_BYTES * restage
    assert stages.unhold(held) == size
    stages.release("alice", size)
    stages.drop(ALICE)
    assert stages.size == 0


def test_a_failed_commit_leaves_its_stages_unchanged(spool: Spool) -> None:
    stages = Stages(HermodSettings(), spool)
    put(stages, ALICE, "s", to_frame(numbered("t", 10)))
    held = stages.hold(Commit(ALICE, ("s",), None, to_ok, Mock(), to_error))
    assert stages.unhold(held) == 0 < stages.size
    stages.drop(ALICE)
    assert stages.size == 0


# -- what a frame becomes ---------------------------------------------------------------------------------


def batch_of(rows: int) -> pa.RecordBatch:
    columns = {"topic": pa.array(["t"] * rows, pa.string()), "payload": pa.array([b"x"] * rows, pa.binary())}
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("sizes", "most"),
    [([0] * 500, 0), ([1] * 1000, 1000 // MERGED_PARTS + 1), ([0, 1] * 100, 2), ([200_000] * 3, 3), ([3], 1)],
)
def test_many_small_record_batches_become_few(sizes: list[int], most: int) -> None:
    data = to_stream(*map(batch_of, sizes))
    parts = finish(read_frame(frame_of(ALICE, "s", data), 0, Limits()))
    assert len(parts) <= most
    assert sum(part.num_rows for part in parts) == sum(sizes)
    assert all(part["payload"].to_pylist() == [b"x"] * part.num_rows for part in parts)


def test_each_record_batch_is_a_step_of_work() -> None:
    """A frame with very many record batches takes turns with other work."""
    data = to_stream(*[batch_of(0)] * 500)
    assert sum(1 for _ in read_frame(frame_of(ALICE, "s", data), 0, Limits())) == 500


# -- the budget -------------------------------------------------------------------------------------------


class Queue:
    def __init__(self, size: int) -> None:
        self.size = size
        self.paused = False

    def queued(self) -> int:
        return self.size

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


@pytest.mark.parametrize(
    ("queued", "staged", "over"),
    [(900, 0, False), (900, 200, True), (400, 10_000, False), (600, 10_000, True), (0, 10_000, False)],
)
def test_what_is_staged_leaves_less_to_the_queues_but_a_half(queued: int, staged: int, over: bool) -> None:
    budget = MemoryBudget(1000)
    budget.staged = lambda: staged
    budget.fell_behind(Queue(queued))
    assert budget._is_over(1.0) == over
