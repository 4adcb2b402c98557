"""The ids of batches that are kept once: a repeat is known for some time, and publishes nothing."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import astuple, dataclass

import pyarrow as pa

from polycast.log.format import MICROS
from polycast.log.snapshot import Snapshot, to_batches


@dataclass(frozen=True, slots=True)
class Kept:
    first: int
    count: int
    micros: int


class BatchIds:
    """Bounded by number and by age."""

    def __init__(self, snapshot: Snapshot, most: int, seconds: float) -> None:
        self._most = most
        self._micros = int(seconds * MICROS)
        table = snapshot.batches
        rows = zip(
            table["batch_id"].to_pylist(),
            table["first"].to_pylist(),
            table["count"].to_pylist(),
            table["time"].cast(pa.int64()).to_pylist(),
            strict=True,
        )
        self._kept: OrderedDict[str, Kept] = OrderedDict((row[0], Kept(*row[1:])) for row in rows)

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, batch_id: str, now: float) -> Kept | None:
        kept = self._kept.get(batch_id)
        return kept if kept and kept.micros + self._micros > now * MICROS else None

    def add(self, batch_id: str, first: int, count: int, micros: int) -> None:
        self._kept.pop(batch_id, None)
        self._kept[batch_id] = Kept(first, count, micros)
        while self._kept and (len(self._kept) > self._most or self._oldest() + self._micros <= micros):
            self._kept.popitem(last=False)

    def _oldest(self) -> int:
        return next(iter(self._kept.values())).micros

    def forget(self, batch_id: str) -> None:
        self._kept.pop(batch_id, None)

    def to_table(self) -> pa.Table:
        return to_batches((batch_id, *astuple(kept)) for batch_id, kept in self._kept.items())
