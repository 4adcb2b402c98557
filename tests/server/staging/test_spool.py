"""The spool: what it loads again, and what it refuses to."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest

from kit.staged import numbered, to_frame, to_stream
from polycast.dialects.hermod.encoders import to_error, to_ok
from polycast.dialects.hermod.settings import HermodSettings
from polycast.log.files.disk import Disk
from polycast.log.read.work import finish
from polycast.model import BatchKey, Limits, Stage
from polycast.server.staging.arrow_frames import StageError, read_frame
from polycast.server.staging.recovery import recover_stages
from polycast.server.staging.spool import PREFIX, FrameHead, Spool, StageFile
from polycast.server.staging.stages import Stages

ALICE = BatchKey("alice", "../../night")
FRAMES = [to_frame(numbered("t", 5)), to_frame(numbered("t", 3))]


def write(spool: Spool, name: str = "s", batch: BatchKey = ALICE) -> StageFile:
    file = spool.create()
    for before, frame in zip((0, 5), FRAMES, strict=True):
        spool.append(file, FrameHead(*batch, name, before), frame).result()
    return file


def load(folder: Path, limits: Limits | None = None, published: tuple[BatchKey, ...] = ()) -> Stages:
    spool = Spool(folder)
    stages = Stages(HermodSettings(stage_bytes=1), spool)
    recover_stages(stages, spool, limits or Limits(), published.__contains__)
    spool.stop()
    return stages


def found(stages: Stages) -> dict[BatchKey, dict[str, int]]:
    return {
        batch: {name: staged.rows for name, staged in named.items()} for batch, named in stages._batches.items()
    }


def test_frames_are_loaded_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a" / "stages")
    for name in ("s", "../../etc/passwd", "ü\0"):
        write(spool, name)
    write(spool, "s", BatchKey("bob", "done"))
    spool.remove([write(spool, "dropped")])
    spool.stop()
    stages = load(tmp_path / "a" / "stages", published=(BatchKey("bob", "done"),))
    assert found(stages) == {ALICE: {"s": 8, "../../etc/passwd": 8, "ü\0": 8}}
    assert {path.name for path in tmp_path.rglob("*.stage")} == {f"{number:020}.stage" for number in range(3)}
    [part, *_] = stages._batches[ALICE]["s"].parts
    assert part["payload"].to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    stages.drop(ALICE)
    assert stages.size == 0 and not stages._shares


def test_numbers_are_not_used_twice_and_the_later_stage_counts(tmp_path: Path) -> None:
    first, second = Spool(tmp_path), Spool(tmp_path)
    write(first)
    second = Spool(tmp_path)
    file = second.create()
    second.append(file, FrameHead(*ALICE, "s", 0), FRAMES[1]).result()
    assert found(load(tmp_path)) == {ALICE: {"s": 3}}
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "the file is empty"),
    "cut in a prefix": (lambda data: data[: PREFIX.size - 1], "the file ends inside a frame, at byte 27"),
    "cut in the last frame": (lambda data: data[:-1], "the file ends inside a frame"),
    "the tail is zeros": (lambda data: data + bytes(100), "there is no frame at byte"),
    "magic": (flip(0), "there is no frame at byte 0"),
    "length": (flip(14), "the file ends inside a frame"),
    "head": (flip(PREFIX.size + 3), "the checksum of the frame at byte 0 is wrong"),
    "data": (flip(-5), "the checksum of the frame at byte"),
    "a frame is missing": (lambda data: data[data.index(b"PCSTAGE", 1) :], "follows 5 rows, and there are 0"),
    "a frame twice": (lambda data: data + data[data.index(b"PCSTAGE", 1) :], "follows 5 rows, and there are 8"),
    "garbage": (lambda data: b"x" * 1000, "there is no frame at byte 0"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_removed_and_never_served(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path)
    write(spool, "whole")
    path = write(spool).path
    change, reason = DAMAGE[kind]
    path.write_bytes(change(path.read_bytes()))
    assert found(load(tmp_path)) == {ALICE: {"whole": 8}}
    assert not path.exists()
    assert f"{path} is removed, and its stage is lost: " in caplog.text
    assert reason in caplog.text


def test_a_file_of_a_newer_version_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(Spool(tmp_path)).path
    path.write_bytes(path.read_bytes().replace(b"PCSTAGE\1", b"PCSTAGE\2"))
    for name in ("note.txt", "x.stage", "7.stage"):
        (tmp_path / name).write_text("not ours")
    assert found(load(tmp_path)) == {}
    assert len(list(tmp_path.iterdir())) == 4
    assert "its version is 2, and this program reads versions up to 1" in caplog.text


def test_frames_beyond_the_limits_of_today(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(Spool(tmp_path))
    assert found(load(tmp_path, Limits(topic_bytes=0))) == {}
    assert "limits.topic_bytes" in caplog.text


def test_a_file_that_is_removed_before_its_first_frame(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    file = spool.create()
    file.remove()
    file.append(FrameHead(*ALICE, "s", 0), FRAMES[0])
    assert not list(tmp_path.iterdir())


def test_frames_without_rows_take_nothing_of_the_disk(tmp_path: Path) -> None:
    """They are not counted, however large they are."""
    spool = Spool(tmp_path)
    stages = Stages(HermodSettings(), spool)
    schema = pa.schema([("topic", pa.string()), ("payload", pa.binary())], {"x": "y" * 100_000})
    empty = to_stream(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))
    for data, rows in ((empty, 0), (empty, 0), (FRAMES[0], 5), (empty, 5)):
        event = Stage(ALICE, "s", data, "", None, to_ok, to_error)
        staged, size = stages.begin(event)
        stages.release(ALICE.owner, size)
        before = staged.rows
        assert stages.add(event, staged, finish(read_frame(event, before, Limits()))) == rows
        asyncio.run(stages.store(event, staged, before))
    [path] = tmp_path.iterdir()
    assert path.stat().st_size < len(FRAMES[0]) + 500
    assert found(load(tmp_path)) == {ALICE: {"s": 5}}


class FullDisk(Disk):
    def sync(self, fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_the_stage(tmp_path: Path) -> None:
    """The frame is refused, and the broker goes on."""
    spool = Spool(tmp_path, FullDisk())
    stages = Stages(HermodSettings(), spool)
    event = Stage(ALICE, "s", FRAMES[0], "", 0, to_ok, to_error)
    staged, size = stages.begin(event)
    stages.release(ALICE.owner, size)
    with pytest.raises(StageError, match="not staged: No space left on device; make room") as raised:
        asyncio.run(stages.store(event, staged, 0))
    assert raised.value.code == 500
    stages.abandon(event, staged)
    spool.stop()
    assert stages.size == 0
    assert not list(tmp_path.iterdir())


def test_a_file_whose_name_is_gone_or_taken_is_refused(tmp_path: Path) -> None:
    """A file with a hole in place of its first frame would be lost at the next start; a link leads anywhere."""
    spool, other = Spool(tmp_path / "stages"), tmp_path / "other"
    other.write_text("of somebody else")
    file, linked = write(spool), spool.create()
    file.path.unlink()
    linked.path.symlink_to(other)
    for each, before in ((file, 8), (linked, 0)):
        with pytest.raises(OSError, match=r"No such file|File exists"):
            spool.append(each, FrameHead(*ALICE, "s", before), FRAMES[0]).result()
    assert other.read_text() == "of somebody else"
    assert not file.path.exists()


class SlowFolder(Disk):
    """A second stage is written while the folder of all stages becomes durable."""

    def sync_folder(self, folder: Path) -> None:
        if folder.name != "stages":
            self.second = self.spool.append(self.spool.create(), FrameHead(*ALICE, "second", 0), FRAMES[0])
            with pytest.raises(TimeoutError):
                self.second.result(timeout=0.1)
        super().sync_folder(folder)

    spool: Spool
    second: Future[None]


def test_no_stage_is_durable_before_the_folder_is(tmp_path: Path) -> None:
    disk = SlowFolder()
    disk.spool = Spool(tmp_path / "stages", disk)
    write(disk.spool)
    disk.second.result()
    assert found(load(tmp_path / "stages")) == {ALICE: {"s": 8, "second": 5}}
