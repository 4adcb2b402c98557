"""The archive's guarantees, without Spark: staging, commits, compaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from log.log_builder import BEGAN, SECOND, LogBuilder
from pipelines.lake import HOUR, read
from polycast.errors import StartError, UsageError
from polycast.pipelines.archive.compaction import FIRST_STEP_BYTES, Compactor, MergeLimits, merge, step_of
from polycast.pipelines.archive.compaction import plan as plan_merges
from polycast.pipelines.archive.files import StagingWriter, hour_name, split_by_hour, stage_partition
from polycast.pipelines.archive.pipeline import plan
from polycast.pipelines.runtime.lake import RECORD, STAGING, Lake, LakeFile, StagedFile
from polycast.spark.options import read_source_options

MIB = 1024 * 1024


class Killed(BaseException):
    """Like kill -9: no cleanup runs."""


def rows_of(count: int) -> pa.RecordBatch:
    return LogBuilder(Path("nowhere")).make(count)


def write_log(folder: Path, count: int) -> None:
    folder.mkdir()
    LogBuilder(folder).segment(count)


# -- staging ---------------------------------------------------------------------------------------------


def test_rows_are_split_by_hour_in_utc() -> None:
    batch = rows_of(5000)
    parts = list(split_by_hour(batch))
    assert [hour_name(hour) for hour, _ in parts] == ["date=2023-11-14/hour=22", "date=2023-11-14/hour=23"]
    assert [part.num_rows for _, part in parts] == [2800, 2200]
    assert list(split_by_hour(batch.slice(0, 0))) == []


def test_files_are_sorted_and_have_statistics(tmp_path: Path) -> None:
    batch = rows_of(5000)
    files = StagingWriter(tmp_path, "x", target_bytes=1)
    for start in range(0, 5000, 1000):
        files.add(batch.slice(start, 1000))
    done = files.close()
    assert sum(file.rows for file in done) == 5000
    assert all(file.size == (tmp_path / file.staged).stat().st_size for file in done)
    assert not list(tmp_path.rglob("*.parquet"))
    for file in done:
        with pq.ParquetFile(tmp_path / file.staged) as opened:
            offsets = opened.read(["offset"])["offset"].to_pylist()
            assert offsets == list(range(file.first, file.last + 1))
            about = opened.metadata.row_group(0)
            names = [about.column(n).path_in_schema for n in range(about.num_columns)]
            assert names == list(batch.schema.names)
            assert about.column(0).statistics.min == file.first
            assert {about.column(n).compression for n in range(about.num_columns)} == {"ZSTD"}


def test_open_files_are_limited(tmp_path: Path) -> None:
    batch = rows_of(20)
    hours = pa.array([BEGAN + n * HOUR * SECOND for n in range(20)]).cast(pa.timestamp("us", tz="UTC"))
    spread = batch.set_column(3, "time", hours)
    done = StagingWriter(tmp_path, "x", MIB)
    done.add(spread)
    assert len(list((tmp_path / "x").iterdir())) == 20
    assert len(done._open) == 8
    assert sum(file.rows for file in done.close()) == 20


# -- commits ---------------------------------------------------------------------------------------------


def stage(lake: Lake, end: int, below: str) -> list[StagedFile]:
    """Stages rows as the workers do, partition by partition."""
    options = read_source_options({"path": str(lake.folder.parent / "log")}, streaming=False)
    partitions = plan(options, lake.record.next, end)
    return [file for each in partitions for file in stage_partition(options, each, lake.folder, below, MIB)]


def add(folder: Path, end: int, number: int) -> Lake:
    """Processes a batch as a restarted pipeline does."""
    lake = Lake(folder)
    lake.open("log")
    if not lake.has("query", number):
        lake.commit("query", number, stage(lake, end, f"query/{number}"), end)
    return lake


def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """Raises Killed instead of the rename, unlink or mkdir with number `after`."""
    done: list[str] = []

    def mortal(name: str) -> Callable[..., Any]:
        real = getattr(Path, name)

        def call(self: Path, *arguments: Any, **named: Any) -> Any:
            if len(done) == after:
                raise Killed
            done.append(f"{name} {self.name}")
            return real(self, *arguments, **named)

        return call

    for name in ("rename", "unlink", "mkdir"):
        monkeypatch.setattr(Path, name, mortal(name))
    return done


def test_a_crash_at_any_moment_leaves_each_row_once(tmp_path: Path) -> None:
    write_log(tmp_path / "log", 6000)
    for moment in range(100):
        folder = tmp_path / f"lake{moment}"
        add(folder, 3000, 0)
        with pytest.MonkeyPatch.context() as patch:
            done = dying(patch, moment)
            try:
                add(folder, 6000, 1)
                break
            except Killed:
                assert len(done) == moment
        lake = add(folder, 6000, 1)  # Spark repeats the batch
        assert [row["offset"] for row in read(folder)] == list(range(6000))
        assert not list((folder / STAGING).rglob("*.part"))
        assert lake.record.next == 6000
    assert 5 < moment < 50


def test_a_crash_during_a_merge(tmp_path: Path) -> None:
    write_log(tmp_path / "log", 2000)
    for moment in range(100):
        folder = tmp_path / f"lake{moment}"
        for number in range(4):
            lake = add(folder, number * 500 + 500, number)
        with pytest.MonkeyPatch.context() as patch:
            dying(patch, moment)
            try:
                Compactor(lake, MergeLimits(MIB, 4)).run()
                break
            except Killed:
                pass
        seen = {row["offset"] for row in read(folder)}
        assert len(seen) == 2000  # no row is missing during the merge
        lake = add(folder, 2000, 3)
        Compactor(lake, MergeLimits(MIB, 4)).run()
        assert [row["offset"] for row in read(folder)] == list(range(2000))
        assert len(lake.files(lake.hours()[0])) == 1
        assert not list((folder / STAGING).rglob("*.part"))
    assert 5 < moment < 50


def test_repeated_batches_and_new_checkpoints_add_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    write_log(tmp_path / "log", 100)
    add(folder, 60, 0)
    lake = add(folder, 60, 0)
    for number, end in enumerate((30, 60, 100)):
        lake.commit("another", number, stage(lake, end, f"another/{number}"), end)
    assert [row["offset"] for row in read(folder)] == list(range(100))


def test_another_log_and_a_damaged_record_are_rejected(tmp_path: Path) -> None:
    write_log(tmp_path / "log", 10)
    add(tmp_path / "lake", 10, 0)
    with pytest.raises(UsageError, match="belongs to another log"):
        Lake(tmp_path / "lake").open("different")
    (tmp_path / "lake" / RECORD).write_text("{")
    with pytest.raises(StartError, match=r"_record\.json cannot be read"):
        Lake(tmp_path / "lake").open("log")


# -- compaction ------------------------------------------------------------------------------------------


def files(*sizes: int) -> list[LakeFile]:
    return [LakeFile(f"{n}", n * 10, n * 10 + 9, size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "over", "groups"),
    [
        ([1] * 3, False, []),
        ([1] * 4, False, [4]),
        ([1] * 4 + [3 * MIB] * 3, False, [4]),
        ([3 * MIB] * 4, False, [4]),
        ([3 * MIB, 1], False, []),
        ([3 * MIB, 1], True, [2]),
        ([60 * MIB, 60 * MIB, 1], True, []),
        ([1, 1, 60 * MIB, 1, 1, 1], True, [2, 3]),
        ([1, 2 * MIB] * 2, False, [4]),
        ([1, 2 * MIB, 30 * MIB, 1, 1], False, []),
        ([30 * MIB] * 6, True, [3, 3]),
        ([1], True, []),
        ([], True, []),
    ],
)
def test_merge_plans(sizes: list[int], over: bool, groups: list[int]) -> None:
    assert [len(group) for group in plan_merges(files(*sizes), over, MergeLimits(100 * MIB, 4))] == groups


def test_size_classes() -> None:
    assert [step_of(size, 4) for size in (1, FIRST_STEP_BYTES, FIRST_STEP_BYTES + 1, 17 * MIB)] == [0, 0, 1, 3]


def test_a_complete_hour_becomes_one_file(tmp_path: Path) -> None:
    write_log(tmp_path / "log", 4000)
    for number in range(8):
        lake = add(tmp_path / "lake", number * 500 + 500, number)
    compactor = Compactor(lake, MergeLimits(MIB, 16))
    assert compactor.run(at_most=0) == 0
    assert compactor.run() == 1
    assert [len(lake.files(hour)) for hour in lake.hours()] == [1, 3]
    compactor.touch([hour_name(BEGAN // SECOND // HOUR + 2)])
    assert compactor.run() == 1
    assert [len(lake.files(hour)) for hour in lake.hours()] == [1, 1]
    assert [row["offset"] for row in read(tmp_path / "lake")] == list(range(4000))


def test_a_merged_file_is_named_by_its_offsets(tmp_path: Path) -> None:
    write_log(tmp_path / "log", 60)
    for number in range(3):
        lake = add(tmp_path / "lake", number * 20 + 20, number)
    [hour] = lake.hours()
    merge(lake, hour, lake.files(hour))
    [file] = lake.files(hour)
    assert (file.first, file.last) == (0, 59)
