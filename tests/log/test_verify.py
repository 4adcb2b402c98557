"""`verify` reports every damage, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from log.log_builder import SEED, LogBuilder, findings, flip, stop
from polycast.log.files.disk import DISK
from polycast.log.files.encoding import encode_rows
from polycast.log.files.folder import remove_segment, segments
from polycast.log.files.format import NOTHING_BEFORE
from polycast.log.files.snapshot import Snapshot, to_topics, write_snapshot
from polycast.log.repair.salvage import salvage
from polycast.log.repair.verify import LogFinding, VerifyProgress, verify
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    """A log of a sealed and a hot segment, and a third one after an unclean stop; it was stopped cleanly."""
    builder = LogBuilder(tmp_path)
    seal(builder.segment(5, 5))
    snapshot = Snapshot(builder.next, to_topics([("a", 5, 8), ("b.c", 5, 9)]))
    write_snapshot(tmp_path, snapshot, SEED, DISK)
    builder.segment(5, 5)
    builder.skip(1000)
    builder.segment(5, 5)
    stop(builder)
    return builder


def damage(folder: Path) -> list[LogFinding]:
    return [finding for finding in findings(folder) if not finding.note]


def path_of(builder: LogBuilder, number: int) -> Path:
    return segments(builder.folder)[number].path


def test_an_intact_log(builder: LogBuilder) -> None:
    reports = list(verify(builder.folder))
    [gap] = [report for report in reports if isinstance(report, LogFinding)]
    assert gap == LogFinding("gap: unclean stop", 20, 1020, note=True)
    last = [report for report in reports if isinstance(report, VerifyProgress)][-1]
    assert last.done == last.total == sum(segment.path.stat().st_size for segment in segments(builder.folder))
    assert last.rows == 30
    done = [report.done for report in reports if isinstance(report, VerifyProgress)]
    assert done == sorted(done)


def test_a_sealed_log(builder: LogBuilder) -> None:
    for segment in segments(builder.folder)[1:]:
        seal(segment.path)
    assert findings(builder.folder) == []


def test_a_log_that_retention_has_shortened(builder: LogBuilder) -> None:
    remove_segment(segments(builder.folder)[0])
    assert findings(builder.folder) == []


def test_an_empty_log(tmp_path: Path) -> None:
    assert findings(tmp_path) == []


def test_a_hot_group(builder: LogBuilder) -> None:
    path = path_of(builder, 1)
    flip(path, 584 + 900)
    [found] = findings(builder.folder)
    assert (found.first, found.next, found.note) == (10, 15, False)
    assert found.what == f"{path}, byte 584: the group's checksum is wrong"


def test_the_first_damage_is_named_and_the_rest_counted(builder: LogBuilder) -> None:
    flip(path_of(builder, 1), 584 + 900)
    flip(path_of(builder, 2), 584 + 900)
    flip(path_of(builder, 0), 2000)
    found = damage(builder.folder)
    assert [finding.first for finding in found] == [0, 10, 1020]
    rows = [report.rows for report in verify(builder.folder) if isinstance(report, VerifyProgress)][-1]
    assert rows == 10


def test_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    builder = LogBuilder(tmp_path)
    path = seal(builder.segment(10, 10, 10))
    assert path is not None
    flip(path, pq.read_metadata(path).row_group(1).column(6).data_page_offset + 40)
    [found] = damage(tmp_path)
    assert (found.first, found.next) == (10, 20)
    assert f"{path}, row group 1: " in found.what


def test_a_group_that_is_taken_out(builder: LogBuilder) -> None:
    """Every checksum is valid, but the chain is broken and offsets are missing."""
    path = path_of(builder, 1)
    data = path.read_bytes()
    second = data.index(b"\xff\xff\xff\xff", 584 + 8)
    path.write_bytes(data[:584] + data[second:])
    found = damage(builder.folder)
    assert [(finding.first, finding.next) for finding in found] == [(10, 15), (15, None)]
    assert "should be next, and no gap is recorded" in found[0].what
    assert "chain is broken" in found[1].what


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_is_taken_out(builder: LogBuilder, number: int) -> None:
    path_of(builder, number).unlink()
    assert damage(builder.folder)


def test_a_segment_of_another_log(builder: LogBuilder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = LogBuilder(tmp_path / "other")
    other.segment(5, 4)
    other.next = 10
    shutil.copy(other.segment(5, 5), path_of(builder, 1))
    assert any("chain is broken" in finding.what for finding in damage(builder.folder))


def test_the_last_group_is_gone(builder: LogBuilder) -> None:
    """Only the state file shows that a group is missing."""
    path = path_of(builder, 2)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\xff\xff\xff\xff", 584 + 8)])
    [found] = damage(builder.folder)
    assert found.what == f"{builder.folder}: the log ends before offset 1,030, where the last stop left it"


def test_the_last_group_is_damaged_after_a_clean_stop(builder: LogBuilder) -> None:
    path = path_of(builder, 2)
    flip(path, path.read_bytes().index(b"\xff\xff\xff\xff", 584 + 8) + 900)
    assert [(finding.first, finding.next) for finding in damage(builder.folder)] == [(1025, None)]


@pytest.mark.parametrize("prefix", [True, False])
def test_a_torn_end_is_a_note_if_the_broker_died(builder: LogBuilder, prefix: bool) -> None:
    stop(builder, clean=False)
    path = path_of(builder, 2)
    data = path.read_bytes()
    last = data.index(b"\xff\xff\xff\xff", 584 + 8)
    torn = (data[last : last + 8] if prefix else bytes(8)) + data[last + 8 : last + 600]
    path.write_bytes(data[:last] + torn)
    [found] = findings(builder.folder)
    assert found.note
    assert f"{path}, byte {last:,}: " in found.what
    assert findings(builder.folder, running=True)[:1] == ([found._replace(note=False)] if prefix else [])


def test_recorded_losses_are_notes(builder: LogBuilder) -> None:
    path = path_of(builder, 1)
    flip(path, 584 + 900)
    salvage(path)
    assert findings(builder.folder) == []
    lost = [report for report in verify(builder.folder) if isinstance(report, LogFinding) and report.first == 10]
    assert [(found.next, found.note) for found in lost] == [(15, True)]
    shutil.rmtree(builder.folder / "quarantine")
    assert damage(builder.folder)


def test_a_snapshot(builder: LogBuilder) -> None:
    path = builder.folder / "00000000000000000010.topics"
    flip(path, path.stat().st_size - 20)
    [found] = damage(builder.folder)
    assert found.what == f"{path}, or its .batches: the snapshot cannot be read"


def test_the_state(builder: LogBuilder) -> None:
    (builder.folder / "state.json").write_text("{")
    assert [finding.what for finding in damage(builder.folder)] == [
        f"{builder.folder}/state.json: it cannot be read"
    ]


def test_rows_that_do_not_match_the_header(tmp_path: Path) -> None:
    """A group with a wrong header."""
    builder = LogBuilder(tmp_path)
    builder.begin()
    rows = builder.make(5).slice(1)
    builder.write(encode_rows(rows, builder.layout, NOTHING_BEFORE, 0))
    builder.end()
    [found] = damage(tmp_path)
    assert "the rows do not match the header of the group" in found.what


def test_gaps_within_a_sealed_segment(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    path = builder.begin()
    builder.add(3)
    builder.skip(5)
    builder.add(3)
    builder.end()
    seal(path)
    assert findings(tmp_path) == []


def test_a_segment_that_is_sealed_while_it_is_verified(builder: LogBuilder) -> None:
    reports = verify(builder.folder)
    next(reports)
    seal(path_of(builder, 1))
    assert all(report.note for report in reports if isinstance(report, LogFinding))


def test_a_segment_that_is_removed_while_others_are_verified(builder: LogBuilder) -> None:
    stop(builder, clean=False)
    reports = verify(builder.folder, running=True)
    next(reports)
    for segment in segments(builder.folder)[:2]:
        remove_segment(segment)
    assert all(report.note for report in reports if isinstance(report, LogFinding))
