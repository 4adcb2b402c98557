"""Recovery from damaged files: no valid group is lost, and no number is reused."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path

import pytest

from crash.log_checks import check_log, read_with_pyarrow, read_with_reader
from kit.wire import wait_for
from log.log_builder import LogBuilder, findings, flip
from log.log_rig import HASTY, RESERVE, FaultyDisk, LogRecord, LogRig, open_rig, reserve_few
from polycast.errors import LogVersionError, StartError
from polycast.log.files import format as file_format
from polycast.log.files import sealed as sealed_files
from polycast.log.files.disk import DISK
from polycast.log.files.hot import HotReader
from polycast.log.files.state import is_running
from polycast.log.read.reader import Reader
from polycast.log.repair.recovery import recover
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal

GROUPS = 5


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)


def written(data: Path) -> list[LogRecord]:
    with open_rig(data) as rig:
        rig.fill(GROUPS)
    return rig.durable


def killed(data: Path) -> tuple[Path, list[LogRecord]]:
    with open_rig(data / "first") as rig:
        rig.fill(GROUPS)
        return rig.crash(data), rig.durable


def hot_of(data: Path) -> Path:
    return min((data / "log").glob("*.arrows"))


def positions_of(path: Path) -> list[int]:
    reader = HotReader(path)
    positions = [group.position for group in reader.groups()]
    reader.close()
    return positions


# -- the last segment ------------------------------------------------------------------------------------


def test_damage_with_groups_behind_it_is_not_an_unfinished_group(tmp_path: Path) -> None:
    """After a kill, too: the groups behind the damage were acknowledged."""
    data, durable = killed(tmp_path)
    path = hot_of(data)
    damaged = path.read_bytes()
    flip(path, positions_of(path)[2] + 400)
    with open_rig(data) as rig:
        last = rig.publish(("t0", b"again"))
    rows, _ = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable[:2] + durable[3:] + rig.durable
    assert last.first == RESERVE
    [aside] = (rig.folder / "quarantine").glob("*.arrows")
    assert len(aside.read_bytes()) == len(damaged)
    assert all(found.note for found in findings(rig.folder))


def test_damage_after_a_clean_stop_without_a_snapshot(tmp_path: Path) -> None:
    """No write was interrupted: a bad group at the end is damage, and the file goes to the quarantine."""
    durable = written(tmp_path)
    path = hot_of(tmp_path)
    flip(path, positions_of(path)[-1] + 400)
    for snapshot in (tmp_path / "log").glob(f"{GROUPS:020}.*"):
        snapshot.unlink()
    with open_rig(tmp_path) as rig:
        assert rig.log.next == GROUPS  # the state knew that
        rig.fill(3)
    rows, _ = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable[:-1] + rig.durable
    assert len(list((rig.folder / "quarantine").glob("*.arrows"))) == 1
    last = {record.topic: record.sequence for record in durable}
    assert all(record.sequence > last[record.topic] for record in rig.durable)


def test_damage_after_a_clean_stop_is_left_to_readers(tmp_path: Path) -> None:
    """A start after a clean stop reads nothing."""
    durable = written(tmp_path)
    path = hot_of(tmp_path)
    flip(path, positions_of(path)[1] + 400)
    with open_rig(tmp_path) as rig:
        rig.fill(3)
    reader = Reader(rig.folder, 0)
    found = [offset for batch in iter(reader.read, None) for offset in batch["offset"].to_pylist()]
    reader.close()
    assert found == [record.offset for record in durable[:1] + durable[2:] + rig.durable]
    assert [(gap.first, gap.next) for gap in reader.skipped] == [(1, 2)]


def test_a_damaged_head(tmp_path: Path) -> None:
    """The state file has the seed, so that checksums can be verified."""
    data, durable = killed(tmp_path)
    flip(hot_of(data), 20)
    with open_rig(data) as rig:
        rig.fill(1)
    rows, _ = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable + rig.durable


def test_an_unreadable_segment(tmp_path: Path) -> None:
    data, _ = killed(tmp_path)
    path = hot_of(data)
    path.write_bytes(b"\x01" * path.stat().st_size)
    with open_rig(data) as rig:
        assert rig.log.next == RESERVE
        rig.fill(3)
        assert all(record.sequence >= RESERVE - GROUPS for record in rig.durable)
    assert len(list((rig.folder / "quarantine").glob("*.arrows"))) == 1


@pytest.mark.parametrize("action", ["truncate", "sync", "write", "rename", "sync_folder"])
@pytest.mark.parametrize("passing", [0, 1, 2])
def test_a_failed_start_can_be_retried(tmp_path: Path, action: str, passing: int) -> None:
    data, durable = killed(tmp_path)
    path = hot_of(data)
    flip(path, positions_of(path)[2] + 400)
    disk = FaultyDisk()
    disk.fail(action, "", passing=passing, times=1)
    with contextlib.suppress(StartError):
        LogRig(data, disk).close()
    with open_rig(data, HASTY) as rig:
        rig.fill(1)
    rows, _ = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable[:2] + durable[3:] + rig.durable
    assert all(found.note for found in findings(rig.folder))
    assert len(list((rig.folder / "quarantine").glob("*.arrows"))) == 1


@pytest.mark.parametrize("action", ["truncate", "sync"])
def test_an_unfinished_group_that_cannot_be_truncated(tmp_path: Path, action: str) -> None:
    data, durable = killed(tmp_path)
    path = hot_of(data)
    path.write_bytes(path.read_bytes()[: positions_of(path)[-1] + 500])
    disk = FaultyDisk()
    disk.fail(action, ".arrows")
    with pytest.raises(StartError, match="Input/output error"):
        LogRig(data, disk)
    with open_rig(data) as rig:
        rig.fill(1)
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable[:-1] + rig.durable
    check_log(rows, gaps)


# -- the state -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [None, b"", b"{", b"[]", b'{"version": 1}', b"\xff\xff", b"null", b'{"version": "x"}']
)
@pytest.mark.parametrize("clean", [True, False])
def test_no_state(tmp_path: Path, text: bytes | None, clean: bool) -> None:
    """Its fields are recovered from the segments; the offsets used behind them are unknown."""
    data, durable = (tmp_path, written(tmp_path)) if clean else killed(tmp_path)
    (data / "log" / "state.json").unlink()
    if text is not None:
        (data / "log" / "state.json").write_bytes(text)
    with open_rig(data, HASTY) as rig:
        assert rig.log.next == GROUPS + RESERVE
        rig.fill(3)
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable + rig.durable
    check_log(rows, gaps)
    assert findings(rig.folder) == []


def test_no_state_after_starts_without_messages(tmp_path: Path) -> None:
    """Snapshots tell how far those have come."""
    data, _ = killed(tmp_path)
    for _ in range(3):
        with open_rig(data, HASTY) as rig:
            reached, sequence = rig.log.next, rig.hub.router.topics.use(b"t0").next_sequence
            data = rig.crash(tmp_path)
    (data / "log" / "state.json").unlink()
    with open_rig(data, HASTY) as rig:
        assert rig.log.next > reached
        rig.fill(1)
        assert rig.durable[0].sequence > sequence
    rows, gaps = read_with_pyarrow(rig.folder)
    check_log(rows, gaps)


def test_a_state_that_is_older_than_the_log(tmp_path: Path) -> None:
    """An old copy was restored."""
    durable = written(tmp_path)
    old = (tmp_path / "log" / "state.json").read_bytes()
    with open_rig(tmp_path) as rig:
        rig.fill(3)
        durable += rig.durable
    (tmp_path / "log" / "state.json").write_bytes(old)
    with open_rig(tmp_path) as rig:
        assert rig.log.next >= GROUPS + 3
        rig.fill(3)
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable + rig.durable
    check_log(rows, gaps)


@pytest.mark.parametrize("change", [{}, {"seed": 5, "reserved": "many"}])
def test_a_state_of_a_newer_version(tmp_path: Path, change: dict[str, object]) -> None:
    """A newer state is refused and left unchanged; the folder is unlocked."""
    written(tmp_path)
    path = tmp_path / "log" / "state.json"
    before = path.read_bytes()
    newer = json.dumps({**json.loads(before), **change, "version": 3})
    path.write_text(newer)
    for _ in range(2):
        with pytest.raises(LogVersionError, match="newer version of Polycast: 3, this one reads 2"):
            LogRig(tmp_path)
    assert path.read_text() == newer
    path.write_bytes(before)
    with open_rig(tmp_path):
        pass


# -- leftovers -------------------------------------------------------------------------------------------


def test_leftovers_are_removed(tmp_path: Path) -> None:
    durable = written(tmp_path)
    folder = tmp_path / "log"
    for name in ("x.tmp", f"{0:020}.parquet.tmp", "state.json.tmp", f"{5:020}.topics.tmp"):
        (folder / name).write_bytes(b"half of it")
    with open_rig(tmp_path) as rig:
        assert list(folder.glob("*.tmp")) == []
        assert [LogRecord(*row) for row in read_with_reader(folder)] == durable
        rig.fill(1)


def test_a_hot_segment_that_is_sealed_is_removed(tmp_path: Path) -> None:
    """A kill between renaming the sealed file and removing the hot one."""
    durable = written(tmp_path)
    hot = hot_of(tmp_path)
    copy = hot.read_bytes()
    with open_rig(tmp_path, seal=True) as rig:
        wait_for(lambda: rig.log.housekeeping.segments_sealed, "sealing")
    hot.write_bytes(copy)
    with open_rig(tmp_path) as rig:
        assert not hot.exists()
        rig.fill(1)
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable + rig.durable
    check_log(rows, gaps)


def test_two_brokers_in_one_folder(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        with pytest.raises(StartError, match=r"in use by process \d+"):
            LogRig(tmp_path)
        rig.fill(1)
    with open_rig(tmp_path):
        pass


def test_is_running_does_not_block_a_start(tmp_path: Path) -> None:
    ending = threading.Event()

    def ask() -> None:
        while not ending.is_set():
            is_running(tmp_path / "log")

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(20):
            with open_rig(tmp_path, HASTY):
                assert is_running(tmp_path / "log")
    finally:
        ending.set()
        for thread in asking:
            thread.join()
    assert not is_running(tmp_path / "log")


@pytest.mark.parametrize("sealed", [False, True])
def test_a_segment_of_a_newer_version_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """Without the state file, too: nothing is moved to the quarantine."""
    for module in (file_format, sealing, sealed_files):
        monkeypatch.setattr(module, "VERSION", 3)
    builder = LogBuilder(tmp_path)
    path = builder.segment(5)
    path = (seal(path) or path) if sealed else path
    monkeypatch.undo()
    with pytest.raises(LogVersionError, match=f"{path} was written by a newer version of Polycast: 3"):
        recover(tmp_path, DISK)
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]
