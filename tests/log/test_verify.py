"""`verify` reports every damage, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from log.shelf import SEED, Shelf, flip, stop
from polycast.log.files.disk import DISK
from polycast.log.files.folder import remove_segment, segments
from polycast.log.files.format import NOTHING_BEFORE, encode_group
from polycast.log.files.snapshot import Snapshot, to_topics, write_snapshot
from polycast.log.repair.salvage import salvage
from polycast.log.repair.verify import LogFinding, VerifyProgress, verify
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A log of a sealed and a hot segment, and a third one after an unclean stop; it was stopped cleanly."""
    shelf = Shelf(tmp_path)
    seal(shelf.segment(5, 5))
    snapshot = Snapshot(shelf.next, to_topics([("a", 5, 8), ("b.c", 5, 9)]))
    write_snapshot(tmp_path, snapshot, SEED, DISK)
    shelf.segment(5, 5)
    shelf.skip(1000)
    shelf.segment(5, 5)
    stop(shelf)
    return shelf


def findings(folder: Path, running: bool = False) -> list[LogFinding]:
    return [report for report in verify(folder, running) if isinstance(report, LogFinding)]


def damage(folder: Path) -> list[LogFinding]:
    return [finding for finding in findings(folder) if not finding.note]


def path_of(shelf: Shelf, number: int) -> Path:
    return segments(shelf.folder)[number].path


def test_an_intact_log(shelf: Shelf) -> None:
    reports = list(verify(shelf.folder))
    assert all(isinstance(report, VerifyProgress) for report in reports)
    last = reports[-1]
    assert isinstance(last, VerifyProgress)
    assert last.done == last.total == sum(segment.path.stat().st_size for segment in segments(shelf.folder))
    assert last.rows == 30
    done = [report.done for report in reports if isinstance(report, VerifyProgress)]
    assert done == sorted(done)


def test_a_sealed_log(shelf: Shelf) -> None:
    for segment in segments(shelf.folder)[1:]:
        seal(segment.path)
    assert findings(shelf.folder) == []


def test_a_log_that_retention_has_shortened(shelf: Shelf) -> None:
    remove_segment(segments(shelf.folder)[0])
    assert findings(shelf.folder) == []


def test_an_empty_log(tmp_path: Path) -> None:
    assert findings(tmp_path) == []


def test_a_hot_group(shelf: Shelf) -> None:
    path = path_of(shelf, 1)
    flip(path, 584 + 900)
    [found] = findings(shelf.folder)
    assert (found.first, found.next, found.note) == (10, 15, False)
    assert found.what == f"{path}, byte 584: the group's checksum is wrong"


def test_the_first_damage_is_named_and_the_rest_counted(shelf: Shelf) -> None:
    flip(path_of(shelf, 1), 584 + 900)
    flip(path_of(shelf, 2), 584 + 900)
    flip(path_of(shelf, 0), 2000)
    found = damage(shelf.folder)
    assert [finding.first for finding in found] == [0, 10, 1020]
    rows = [report.rows for report in verify(shelf.folder) if isinstance(report, VerifyProgress)][-1]
    assert rows == 10


def test_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    shelf = Shelf(tmp_path)
    path = seal(shelf.segment(10, 10, 10))
    assert path is not None
    flip(path, pq.read_metadata(path).row_group(1).column(6).data_page_offset + 40)
    [found] = damage(tmp_path)
    assert (found.first, found.next) == (10, 20)
    assert f"{path}, row group 1: " in found.what


def test_a_group_that_is_taken_out(shelf: Shelf) -> None:
    """Every checksum is valid, but the chain is broken and offsets are missing."""
    path = path_of(shelf, 1)
    data = path.read_bytes()
    second = data.index(b"\xff\xff\xff\xff", 584 + 8)
    path.write_bytes(data[:584] + data[second:])
    found = damage(shelf.folder)
    assert [(finding.first, finding.next) for finding in found] == [(10, 15), (15, None)]
    assert "should be next, and no gap is recorded" in found[0].what
    assert "chain is broken" in found[1].what


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_is_taken_out(shelf: Shelf, number: int) -> None:
    path_of(shelf, number).unlink()
    assert damage(shelf.folder)


def test_a_segment_of_another_log(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Shelf(tmp_path / "other")
    other.segment(5, 4)
    other.next = 10
    shutil.copy(other.segment(5, 5), path_of(shelf, 1))
    assert any("chain is broken" in finding.what for finding in damage(shelf.folder))


def test_the_last_group_is_gone(shelf: Shelf) -> None:
    """Only the state file shows that a group is missing."""
    path = path_of(shelf, 2)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\xff\xff\xff\xff", 584 + 8)])
    [found] = damage(shelf.folder)
    assert found.what == f"{shelf.folder}: the log ends before offset 1,030, where the last stop left it"


def test_the_last_group_is_damaged_after_a_clean_stop(shelf: Shelf) -> None:
    path = path_of(shelf, 2)
    flip(path, path.read_bytes().index(b"\xff\xff\xff\xff", 584 + 8) + 900)
    assert [(finding.first, finding.next) for finding in damage(shelf.folder)] == [(1025, None)]


@pytest.mark.parametrize("prefix", [True, False])
def test_a_torn_end_is_a_note_if_the_broker_died(shelf: Shelf, prefix: bool) -> None:
    stop(shelf, clean=False)
    path = path_of(shelf, 2)
    data = path.read_bytes()
    last = data.index(b"\xff\xff\xff\xff", 584 + 8)
    torn = (data[last : last + 8] if prefix else bytes(8)) + data[last + 8 : last + 600]
    path.write_bytes(data[:last] + torn)
    [found] = findings(shelf.folder)
    assert found.note
    assert f"{path}, byte {last:,}: " in found.what
    assert findings(shelf.folder, running=True)[:1] == ([found._replace(note=False)] if prefix else [])


def test_recorded_losses_are_notes(shelf: Shelf) -> None:
    path = path_of(shelf, 1)
    flip(path, 584 + 900)
    salvage(path)
    [found] = findings(shelf.folder)
    assert (found.first, found.next, found.note) == (10, 15, True)
    shutil.rmtree(shelf.folder / "quarantine")
    assert damage(shelf.folder)


def test_a_snapshot(shelf: Shelf) -> None:
    path = shelf.folder / "00000000000000000010.topics"
    flip(path, path.stat().st_size - 20)
    [found] = damage(shelf.folder)
    assert found.what == f"{path}, or its .batches: the snapshot cannot be read"


def test_the_state(shelf: Shelf) -> None:
    (shelf.folder / "state.json").write_text("{")
    assert [finding.what for finding in damage(shelf.folder)] == [f"{shelf.folder}/state.json: it cannot be read"]


def test_rows_that_do_not_match_the_header(tmp_path: Path) -> None:
    """A group with a wrong header."""
    shelf = Shelf(tmp_path)
    shelf.begin()
    rows = shelf.make(5).slice(1)
    shelf.write(encode_group(rows, shelf.layout, NOTHING_BEFORE, 0))
    shelf.end()
    [found] = damage(tmp_path)
    assert "the rows do not match the header of the group" in found.what


def test_gaps_within_a_sealed_segment(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    path = shelf.begin()
    shelf.add(3)
    shelf.skip(5)
    shelf.add(3)
    shelf.end()
    seal(path)
    assert findings(tmp_path) == []


def test_a_segment_that_is_sealed_while_it_is_verified(shelf: Shelf) -> None:
    reports = verify(shelf.folder)
    next(reports)
    seal(path_of(shelf, 1))
    assert not [report for report in reports if isinstance(report, LogFinding)]


def test_a_segment_that_is_removed_while_others_are_verified(shelf: Shelf) -> None:
    stop(shelf, clean=False)
    reports = verify(shelf.folder, running=True)
    next(reports)
    for segment in segments(shelf.folder)[:2]:
        remove_segment(segment)
    assert not [report for report in reports if isinstance(report, LogFinding)]
