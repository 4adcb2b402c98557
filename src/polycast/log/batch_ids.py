"""Remembered batch ids: a repeated batch is recognised, and publishes nothing.

An id belongs to the identity that published the batch. Ids are bounded by age and by number. Past the bound, the
owner with the most ids loses its oldest one, so that an owner with few ids keeps them however many ids others add;
among equals, the owner whose oldest id is the oldest loses it. The remembered ids depend only on the sequence of
`add` calls, also across a restart. This module is plain data, without pyarrow: snapshots convert `BatchRow`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from polycast.log.times import to_micros
from polycast.model import CLIENT_BATCHES, BatchKey

UNOWNED = ""
"""The owner of ids that version 1 of the log wrote. Every identity knows them."""

COUNT_MISMATCH = (
    "batch %s was published with %s messages, and now it has %s: nothing is published; send the same messages "
    "again, or use another batch_id"
)
"""The refusal of a repeat with another number of messages."""

OF_CLIENT = 64
"""Batches of a client that are remembered; it has 8 unacknowledged ones at most."""
NUMBER = re.compile("[0-9]{1,18}")
STALE_RANKS = 1000
"""Outdated ranks in the heap before it is rebuilt, in addition to one for each owner."""

Rank = tuple[int, int, str]
"""Minus the number of ids of an owner, the first offset of its oldest id, the owner. The least loses an id."""


class BatchRow(NamedTuple):
    """A batch id as a row of a snapshot."""

    batch_id: str
    first: int
    messages: int
    micros: int
    owner: str


@dataclass(frozen=True, slots=True)
class KnownBatch:
    first: int
    count: int
    micros: int

    def mismatch(self, batch: BatchKey, count: int) -> tuple[str, str, str]:
        """For `COUNT_MISMATCH`."""
        return repr(batch.batch_id), f"{self.count:,}", f"{count:,}"


class BatchIds:
    """`add` takes time logarithmic in the number of owners."""

    def __init__(self, limit: int, seconds: float, rows: Iterable[BatchRow] = ()) -> None:
        self._limit = limit
        self._lifetime = to_micros(seconds)
        self._known: OrderedDict[BatchKey, KnownBatch] = OrderedDict()
        self._owned: dict[str, OrderedDict[BatchKey, None]] = {}
        self._ranks: list[Rank] = []
        """A heap, empty until the limit is first exceeded. Ranks that no longer hold are skipped."""
        for row in rows:
            self.add(BatchKey(row.owner, row.batch_id), row.first, row.messages, row.micros)

    def __len__(self) -> int:
        return len(self._known)

    def rows(self) -> Iterator[BatchRow]:
        """In the order in which they were added."""
        for key, known in self._known.items():
            yield BatchRow(key.batch_id, known.first, known.count, known.micros, key.owner)

    def find(self, batch: BatchKey, micros: int) -> KnownBatch | None:
        for key in (batch, BatchKey(UNOWNED, batch.batch_id)):
            known = self._known.get(key)
            if known and known.micros + self._lifetime > micros:
                return known
        return None

    def add(self, batch: BatchKey, first: int, count: int, micros: int) -> None:
        self.forget(batch)
        self._forget_of_client(batch)
        self._known[batch] = KnownBatch(first, count, micros)
        self._owned.setdefault(batch.owner, OrderedDict())[batch] = None
        self._rank(batch.owner)
        while self._known and self._oldest().micros + self._lifetime <= micros:
            self.forget(next(iter(self._known)))
        while len(self._known) > self._limit:
            self.forget(self._surplus())

    def _forget_of_client(self, batch: BatchKey) -> None:
        """A client numbers its batches, and waits for acknowledgements before it sends many more."""
        client, _, number = batch.batch_id.rpartition("/")
        if client.startswith(CLIENT_BATCHES) and NUMBER.fullmatch(number):
            self.forget(BatchKey(batch.owner, f"{client}/{int(number) - OF_CLIENT}"))

    def forget(self, batch: BatchKey) -> None:
        if self._known.pop(batch, None) is None:
            return
        owned = self._owned[batch.owner]
        del owned[batch]
        if owned:
            self._rank(batch.owner)
        else:
            del self._owned[batch.owner]

    def _oldest(self) -> KnownBatch:
        return next(iter(self._known.values()))

    # -- which owner has the most ids --------------------------------------------------------------------

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
        return -len(owned), self._known[next(iter(owned))].first, owner

    def _surplus(self) -> BatchKey:
        """The id to lose: the oldest of the owner with the most ids."""
        if not self._ranks:
            self._rank_all()
        while True:
            owner = self._ranks[0][2]
            if owner in self._owned and self._rank_of(owner) == self._ranks[0]:
                return next(iter(self._owned[owner]))
            heappop(self._ranks)
