"""Starts: what they restore, what they skip, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from crash.log_checks import check_log, read_with_pyarrow
from kit.wire import wait_for
from log.log_builder import findings
from log.log_rig import HASTY, NOW, RESERVE, HastyDisk, LogRecord, open_rig, reserve_few
from polycast.log.files import hot, snapshot
from polycast.log.files.folder import segments
from polycast.log.repair import recovery
from polycast.log.upkeep.inventory import Inventory


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)


def check_verified(folder: Path) -> None:
    assert findings(folder) == []


# -- clean stops -----------------------------------------------------------------------------------------


def test_a_clean_stop_loses_nothing(tmp_path: Path) -> None:
    """Topics, sequences, the floor and batch ids are unchanged, and no number is skipped."""
    with open_rig(tmp_path, topics=6) as rig:
        rig.fill(20, topics=10)  # more than are remembered: the floor rises
        rig.publish(("t1", b"x"), ("", b"y"), ("höhe", b"z"), batch_id="once", now=NOW + 5)
        before = rig.topics(), rig.hub.router.topics.floor, rig.log.next
    assert before[1] > 0
    with open_rig(tmp_path, topics=6) as reopened:
        assert (reopened.topics(), reopened.hub.router.topics.floor, reopened.log.next) == before
        durable = reopened.find("once", NOW)
        assert durable and (durable.first, durable.count, durable.micros) == (20, 3, int((NOW + 5) * 1e6))
    with open_rig(tmp_path, topics=6) as reopened:
        assert (reopened.topics(), reopened.hub.router.topics.floor, reopened.log.next) == before
        assert reopened.find("once", NOW) == durable
        reopened.fill(1)
    rows, gaps = read_with_pyarrow(reopened.folder)
    assert gaps == [] and [LogRecord(*row) for row in rows] == rig.durable + reopened.durable
    check_verified(reopened.folder)


def test_time_does_not_go_back(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        rig.publish(("a", b"1"), now=NOW)
        image = rig.crash(tmp_path)
    for place in (tmp_path, image):
        with open_rig(place) as reopened:
            reopened.publish(("a", b"2"), now=NOW - 100)
            reopened.publish(("a", b"2"), now=NOW + 1)
        table = hot.HotReader(max(reopened.folder.glob("*.arrows")))
        times = [time.value for group in table.groups() for time in group.batch["time"]]
        table.close()
        assert times == [int(NOW * 1e6), int((NOW + 1) * 1e6)]


def test_a_new_folder_is_durable_in_its_parents(tmp_path: Path) -> None:
    class Listing(HastyDisk):
        synced: ClassVar[list[Path]] = []

        def sync_folder(self, folder: Path) -> None:
            self.synced.append(folder)

    data = tmp_path / "a" / "b"
    with open_rig(data, Listing()):
        assert Listing.synced[:3] == [data, tmp_path / "a", tmp_path]


# -- kills -----------------------------------------------------------------------------------------------


def test_killed_again_and_again_without_messages(tmp_path: Path) -> None:
    """No message is lost, no number is reused, and no files pile up."""
    with open_rig(tmp_path / "data") as rig:
        rig.fill(7)
        rig.publish(("t0", b"x"), batch_id="once")
        image = rig.crash(tmp_path)
    reached = 0
    for _ in range(5):
        with open_rig(image, HASTY) as reopened:
            assert reopened.log.next > reached
            reached, sequence = reopened.log.next, reopened.hub.router.topics.use(b"t0").next_sequence
            assert reopened.find("once", NOW)
            assert len(list(reopened.folder.glob("*.topics"))) == 2
            image = reopened.crash(tmp_path)
    with open_rig(image) as reopened:
        assert reopened.log.next > reached and reopened.hub.router.topics.use(b"t0").next_sequence > sequence
        reopened.publish(("t0", b"at last"))
    rows, gaps = read_with_pyarrow(reopened.folder)
    assert [LogRecord(*row) for row in rows] == rig.durable + reopened.durable
    check_log(rows, gaps)
    check_verified(reopened.folder)


def test_kills_and_messages_in_turn(tmp_path: Path) -> None:
    image = tmp_path / "data"
    durable: list[LogRecord] = []
    for number in range(6):
        with open_rig(image, HASTY, segment_bytes=65_536) as rig:
            for other in range(number):
                assert rig.find(f"batch {other}", NOW)
            rig.fill(number % 3, size=40_000)
            rig.publish(("t0", b"x"), ("t1", b"y"), batch_id=f"batch {number}")
            durable += rig.durable
            image = rig.crash(tmp_path)
    rows, gaps = read_with_pyarrow(rig.folder)
    assert [LogRecord(*row) for row in rows] == durable
    check_log(rows, gaps)
    check_verified(rig.folder)


def test_a_forgotten_topic_does_not_reuse_sequences(tmp_path: Path) -> None:
    """The broker forgot `old`, gave `new` sequences above it, and died before `new` was durable."""
    with open_rig(tmp_path / "data", topics=4) as rig:
        for _ in range(2 * RESERVE // 100):
            rig.publish(*[("old", b"x")] * 100)
        for number in range(8):
            rig.publish((f"t{number}", b"x"))
        image = rig.crash(tmp_path)
        rig.publish(("new", b"heard, and lost"))
        delivered = rig.durable[-1]
    assert delivered.sequence >= 2 * RESERVE
    with open_rig(image, topics=1000) as reopened:  # one that remembers more
        reopened.publish(("new", b"another"))
    assert reopened.durable[0].sequence > delivered.sequence


def test_a_gap_survives_a_clean_stop_without_messages(tmp_path: Path) -> None:
    with open_rig(tmp_path / "data") as rig:
        rig.fill(2)
        image = rig.crash(tmp_path)
    with open_rig(image) as reopened:
        pass  # a clean stop without messages keeps what is not on record yet
    with open_rig(image) as reopened:
        reopened.fill(1)
    _, gaps = read_with_pyarrow(reopened.folder)
    assert gaps == [(2, RESERVE, "unclean stop")]


# -- what a start costs ----------------------------------------------------------------------------------


class Opened:
    """Counts the files of the log that are opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: Counter[str] = Counter()
        monkeypatch.setattr(Inventory, "update", lambda *_: None)  # after a start, in the background
        monkeypatch.setattr(hot.HotReader, "__init__", self._counted(".arrows", hot.HotReader.__init__))
        monkeypatch.setattr(pq, "ParquetFile", self._counted(".parquet", pq.ParquetFile))
        monkeypatch.setattr(recovery, "read_snapshot", self._counted("snapshot", snapshot.read_snapshot))

    def _counted(self, name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def opened(*arguments: Any, **more: Any) -> Any:
            self.names[name] += 1
            return make(*arguments, **more)

        return opened


@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("seal", [True, False])
def test_a_start_does_not_depend_on_older_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, seal: bool
) -> None:
    with open_rig(tmp_path / "data", segment_bytes=65_536, seal=seal, seal_share=1.0) as rig:
        rig.fill(count, size=70_000)
        if seal:
            wait_for(lambda: rig.log.housekeeping.segments_sealed == count - 1, "sealing")
        wait_for(lambda: len(list(rig.folder.glob("*.topics"))) == count, "snapshots")
        image = rig.crash(tmp_path)
    assert len(segments(rig.folder)) == count
    opened = Opened(monkeypatch)
    with open_rig(tmp_path / "data"):
        assert opened.names == {"snapshot": 1}
    opened.names.clear()
    with open_rig(image) as reopened:
        assert opened.names == {"snapshot": 1, ".arrows": 1}
        last = rig.topics()
        now = reopened.topics()
        assert now.keys() == last.keys()
        assert all(now[topic][0] >= last[topic][0] for topic in last)
