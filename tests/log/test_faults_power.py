"""Power failures at any moment: acknowledged messages are stored, and no number is reused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from crash.log_checks import read_with_pyarrow
from log.log_builder import findings
from log.log_rig import HASTY, NOW, LogRecord, LogRig, records_in, reserve_few
from log.power import PowerDisk

TOPICS = ("a", "b", "c.d")
SEEDS = max(2, int(os.environ.get("POLYCAST_CRASH", "0")) // 50)
MOMENTS = 8


class Moment(NamedTuple):
    """The remaining files, and what was durable at the power failure."""

    image: Path
    durable: list[LogRecord]
    ids: list[str]
    next: int
    sequences: dict[str, int]


class Scene:
    def __init__(self, place: Path, seed: int, sync: str) -> None:
        self.place = place
        self.random = Random(seed)
        self.moments: list[Moment] = []
        self.ids: list[str] = []
        self.sequences = dict.fromkeys(TOPICS, 0)
        self.records: dict[int, LogRecord] = {}
        self.rig: LogRig | None = None
        self.disk = PowerDisk(Random(seed + 1), self.maybe_fail)
        self._chance = Random(seed + 2)
        self.rig = LogRig(place / "data", self.disk, segment_bytes=65_536, seal=True, seal_share=1.0, sync=sync)

    def maybe_fail(self) -> None:
        rig = self.rig
        if rig is None or len(self.moments) >= MOMENTS or self._chance.random() > 0.05:
            return
        image = self.place / f"image-{len(self.moments)}"
        known = Moment(image, list(rig.durable), list(self.ids), rig.hub.ledger.next_offset, dict(self.sequences))
        self.disk.fail(image)
        self.moments.append(known)

    def play(self) -> None:
        for number in range(40):
            assert self.rig
            waiting = list(self.publish_group(number))
            while self.rig.log.durable_next < self.rig.log.next:
                assert not self.rig.wait_durable().reason
            for batch_id, records in waiting:
                self.rig.durable += records
                self.ids += [batch_id] if batch_id else []
        assert self.rig
        self.rig.close()

    def publish_group(self, number: int) -> Iterator[tuple[str, list[LogRecord]]]:
        assert self.rig
        for turn in range(self.random.randint(1, 6)):
            batch_id = f"{number}-{turn}" if self.random.random() < 0.3 else ""
            topics = self.random.choices(TOPICS, k=self.random.randint(1, 9))
            messages = [(topic, self.random.randbytes(self.random.choice((5, 50, 3000)))) for topic in topics]
            records = records_in(self.rig.append(*messages, batch_id=batch_id))
            self.records.update({each.offset: each for each in records})
            self.sequences.update({each.topic: each.sequence for each in records})
            yield batch_id, records


def check(moment: Moment, scene: Scene, promised: bool) -> None:
    rig = LogRig(moment.image, HASTY)
    rows = [LogRecord(*row) for row in read_with_pyarrow(rig.folder)[0]]
    assert all(scene.records[row.offset] == row for row in rows)
    assert [row.offset for row in rows] == sorted({row.offset for row in rows})
    if promised:
        lost = set(moment.durable) - set(rows)
        assert not lost, f"{len(lost)} messages that were acknowledged, from offset {min(lost).offset} on"
        assert all(rig.find(batch_id, NOW) for batch_id in moment.ids)
    offsets = {row.offset for row in rows}
    for batch_id in (f"{number}-{turn}" for number in range(40) for turn in range(6)):
        durable = rig.find(batch_id, NOW)
        assert durable is None or offsets.issuperset(range(durable.first, durable.first + durable.count))
    assert rig.log.next >= moment.next
    rig.publish(*[(topic, b"again") for topic in TOPICS])
    assert all(records.sequence > moment.sequences[records.topic] for records in rig.durable)
    rig.close()
    assert all(found.note for found in findings(rig.folder))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("sync", ["always", "never"])
def test_the_power_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, sync: str) -> None:
    """With `sync = never` messages may be missing, but stored messages are correct."""
    reserve_few(monkeypatch)
    scene = Scene(tmp_path, seed, sync)
    scene.play()
    assert len(scene.moments) > 3
    for moment in scene.moments:
        check(moment, scene, promised=sync == "always")
