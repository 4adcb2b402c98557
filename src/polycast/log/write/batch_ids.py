"""The ids of batches that are kept once: a repeat is known for some time, and publishes nothing.

An id belongs to the identity that published the batch. Ids are bounded by age and by number. Where there are too
many, the identity with the most ids loses its oldest one, so an identity with few ids keeps them however many
others add. Among equals it is the identity whose oldest id is the oldest. What is remembered follows from the
sequence of what was added alone, and so does what is remembered after a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.files.format import MICROS, UNOWNED
from polycast.log.files.snapshot import TIME, BatchRow, to_batches
from polycast.model import BatchKey

STALE_RANKS = 1000
"""How many ranks that do not hold any more are kept, besides as many as there are owners."""

Rank = tuple[int, int, str]
"""How many ids an owner has, negative; the first offset of its oldest; the owner. The least one loses an id."""


@dataclass(frozen=True, slots=True)
class Kept:
    first: int
    count: int
    micros: int

    def beside(self, batch: BatchKey, count: int) -> tuple[str, str, str]:
        """For `ANOTHER_COUNT`."""
        return repr(batch.batch_id), f"{self.count:,}", f"{count:,}"


class BatchIds:
    """`add` takes time that grows with the logarithm of the number of owners, and with nothing else."""

    def __init__(self, table: pa.Table, most: int, seconds: float) -> None:
        self._most = most
        self._micros = int(seconds * MICROS)
        self._kept: OrderedDict[BatchKey, Kept] = OrderedDict()
        self._owned: dict[str, OrderedDict[BatchKey, None]] = {}
        self._ranks: list[Rank] = []
        """A heap, from the first time on that an id must go. An owner whose ids have changed has a new rank, and
        its old one is passed over."""
        for row in _rows(table):
            self.add(BatchKey(row.owner, row.batch_id), row.first, row.messages, row.micros)

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, batch: BatchKey, now: float) -> Kept | None:
        """An id that version 1 of the log has, which knows no owners, is known to everybody."""
        for key in (batch, BatchKey(UNOWNED, batch.batch_id)):
            kept = self._kept.get(key)
            if kept and kept.micros + self._micros > now * MICROS:
                return kept
        return None

    def add(self, batch: BatchKey, first: int, count: int, micros: int) -> None:
        self.forget(batch)
        self._kept[batch] = Kept(first, count, micros)
        self._owned.setdefault(batch.owner, OrderedDict())[batch] = None
        self._rank(batch.owner)
        while self._kept and self._oldest().micros + self._micros <= micros:
            self.forget(next(iter(self._kept)))
        while len(self._kept) > self._most:
            self.forget(self._surplus())

    def forget(self, batch: BatchKey) -> None:
        if self._kept.pop(batch, None) is None:
            return
        owned = self._owned[batch.owner]
        del owned[batch]
        if owned:
            self._rank(batch.owner)
        else:
            del self._owned[batch.owner]

    def to_table(self) -> pa.Table:
        return to_batches(
            BatchRow(batch.batch_id, kept.first, kept.count, kept.micros, batch.owner)
            for batch, kept in self._kept.items()
        )

    def _oldest(self) -> Kept:
        return next(iter(self._kept.values()))

    # -- who has the most --------------------------------------------------------------------------------

    def _rank(self, owner: str) -> None:
        if self._ranks:
            heappush(self._ranks, self._rank_of(owner))
        if len(self._ranks) > 2 * len(self._owned) + STALE_RANKS:
            self._rank_all()

    def _rank_all(self) -> None:
        self._ranks = [self._rank_of(owner) for owner in self._owned]
        heapify(self._ranks)

    def _rank_of(self, owner: str) -> Rank:
        owned = self._owned[owner]
        return -len(owned), self._kept[next(iter(owned))].first, owner

    def _surplus(self) -> BatchKey:
        """The id to lose: the oldest of the owner with the most."""
        if not self._ranks:
            self._rank_all()
        while True:
            owner = self._ranks[0][2]
            if owner in self._owned and self._rank_of(owner) == self._ranks[0]:
                return next(iter(self._owned[owner]))
            heappop(self._ranks)


def _rows(table: pa.Table) -> Iterator[BatchRow]:
    columns = [column.cast(pa.int64()) if column.type == TIME else column for column in table.columns]
    return map(BatchRow, *(column.to_pylist() for column in columns))


def trim_batches(table: pa.Table, most: int, seconds: float, micros: int) -> pa.Table:
    """What is left at that time of ids that were added in the order of these rows."""
    oldest = pa.scalar(micros - int(seconds * MICROS), TIME)
    young = table.filter(pc.greater_equal(table["time"], oldest))
    return young if young.num_rows <= most else BatchIds(young, most, seconds).to_table()
