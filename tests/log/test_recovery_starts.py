"""Starts: what they restore, what they skip, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from crash.evidence import check_log, read_with_pyarrow
from kit.wire import wait_for
from log.desk import HASTY, NOW, RESERVE, HastyDisk, Said, desk, reserve_few
from polycast.log.files import hot, snapshot
from polycast.log.files.folder import segments
from polycast.log.repair import recovery
from polycast.log.repair.verify import LogFinding, verify


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)


def check_verified(folder: Path) -> None:
    assert [found for found in verify(folder) if isinstance(found, LogFinding)] == []


# -- clean stops -----------------------------------------------------------------------------------------


def test_a_clean_stop_loses_nothing(tmp_path: Path) -> None:
    """Topics, sequences, the floor and batch ids are unchanged, and no number is skipped."""
    with desk(tmp_path, topics=6) as here:
        here.fill(20, topics=10)  # more than are remembered: the floor rises
        here.publish(("t1", b"x"), ("", b"y"), ("höhe", b"z"), batch_id="once", now=NOW + 5)
        before = here.topics(), here.hub.router.topics.floor, here.log.next
    assert before[1] > 0
    with desk(tmp_path, topics=6) as again:
        assert (again.topics(), again.hub.router.topics.floor, again.log.next) == before
        kept = again.find("once", NOW)
        assert kept and (kept.first, kept.count, kept.micros) == (20, 3, int((NOW + 5) * 1e6))
    with desk(tmp_path, topics=6) as again:
        assert (again.topics(), again.hub.router.topics.floor, again.log.next) == before
        assert again.find("once", NOW) == kept
        again.fill(1)
    rows, gaps = read_with_pyarrow(again.folder)
    assert gaps == [] and [Said(*row) for row in rows] == here.kept + again.kept
    check_verified(again.folder)


def test_time_does_not_go_back(tmp_path: Path) -> None:
    with desk(tmp_path) as here:
        here.publish(("a", b"1"), now=NOW)
        image = here.crash(tmp_path)
    for place in (tmp_path, image):
        with desk(place) as again:
            again.publish(("a", b"2"), now=NOW - 100)
            again.publish(("a", b"2"), now=NOW + 1)
        table = hot.HotReader(max(again.folder.glob("*.arrows")))
        times = [time.value for group in table.groups() for time in group.batch["time"]]
        table.close()
        assert times == [int(NOW * 1e6), int((NOW + 1) * 1e6)]


def test_a_new_folder_is_durable_in_its_parents(tmp_path: Path) -> None:
    class Listing(HastyDisk):
        synced: ClassVar[list[Path]] = []

        def sync_folder(self, folder: Path) -> None:
            self.synced.append(folder)

    data = tmp_path / "a" / "b"
    with desk(data, Listing()):
        assert Listing.synced[:3] == [data, tmp_path / "a", tmp_path]


# -- kills -----------------------------------------------------------------------------------------------


def test_killed_again_and_again_without_messages(tmp_path: Path) -> None:
    """No message is lost, no number is reused, and no files pile up."""
    with desk(tmp_path / "data") as here:
        here.fill(7)
        here.publish(("t0", b"x"), batch_id="once")
        image = here.crash(tmp_path)
    reached = 0
    for _ in range(5):
        with desk(image, HASTY) as again:
            assert again.log.next > reached
            reached, sequence = again.log.next, again.hub.router.topics.use(b"t0").next_sequence
            assert again.find("once", NOW)
            assert len(list(again.folder.glob("*.topics"))) == 2
            image = again.crash(tmp_path)
    with desk(image) as again:
        assert again.log.next > reached and again.hub.router.topics.use(b"t0").next_sequence > sequence
        again.publish(("t0", b"at last"))
    rows, gaps = read_with_pyarrow(again.folder)
    assert [Said(*row) for row in rows] == here.kept + again.kept
    check_log(rows, gaps)
    check_verified(again.folder)


def test_kills_and_messages_in_turn(tmp_path: Path) -> None:
    image = tmp_path / "data"
    kept: list[Said] = []
    for number in range(6):
        with desk(image, HASTY, segment_bytes=65_536) as here:
            for other in range(number):
                assert here.find(f"batch {other}", NOW)
            here.fill(number % 3, size=40_000)
            here.publish(("t0", b"x"), ("t1", b"y"), batch_id=f"batch {number}")
            kept += here.kept
            image = here.crash(tmp_path)
    rows, gaps = read_with_pyarrow(here.folder)
    assert [Said(*row) for row in rows] == kept
    check_log(rows, gaps)
    check_verified(here.folder)


def test_a_forgotten_topic_does_not_reuse_sequences(tmp_path: Path) -> None:
    """The broker forgot `old`, gave `new` sequences above it, and died before `new` was durable."""
    with desk(tmp_path / "data", topics=4) as here:
        for _ in range(2 * RESERVE // 100):
            here.publish(*[("old", b"x")] * 100)
        for number in range(8):
            here.publish((f"t{number}", b"x"))
        image = here.crash(tmp_path)
        here.publish(("new", b"heard, and lost"))
        heard = here.kept[-1]
    assert heard.sequence >= 2 * RESERVE
    with desk(image, topics=1000) as again:  # one that remembers more
        again.publish(("new", b"another"))
    assert again.kept[0].sequence > heard.sequence


def test_a_gap_survives_a_clean_stop_without_messages(tmp_path: Path) -> None:
    with desk(tmp_path / "data") as here:
        here.fill(2)
        image = here.crash(tmp_path)
    with desk(image) as again:
        pass  # a clean stop without messages keeps what is not on record yet
    with desk(image) as again:
        again.fill(1)
    _, gaps = read_with_pyarrow(again.folder)
    assert gaps == [(2, RESERVE, "unclean stop")]


# -- what a start costs ----------------------------------------------------------------------------------


class Opened:
    """Counts the files of the log that are opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: Counter[str] = Counter()
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
    with desk(tmp_path / "data", segment_bytes=65_536, seal=seal, seal_share=1.0) as here:
        here.fill(count, size=70_000)
        if seal:
            wait_for(lambda: here.log.housekeeping.segments_sealed == count - 1, "sealing")
        wait_for(lambda: len(list(here.folder.glob("*.topics"))) == count, "snapshots")
        image = here.crash(tmp_path)
    assert len(segments(here.folder)) == count
    opened = Opened(monkeypatch)
    with desk(tmp_path / "data"):
        assert opened.names == {"snapshot": 1}
    opened.names.clear()
    with desk(image) as again:
        assert opened.names == {"snapshot": 1, ".arrows": 1}
        last = here.topics()
        now = again.topics()
        assert now.keys() == last.keys()
        assert all(now[topic][0] >= last[topic][0] for topic in last)
