"""Batch ids: each belongs to one identity; past the limit, the identity with the most ids loses one."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from log.log_rig import NOW
from polycast.log.batch_ids import UNOWNED, BatchIds, BatchRow
from polycast.log.files.snapshot import batch_rows, to_batches, trim_batches
from polycast.log.times import MICROS, to_micros
from polycast.model import BatchKey

DAY = 86_400.0


def ids_of(most: int, seconds: float = DAY) -> BatchIds:
    return BatchIds(most, seconds)


class Filling:
    """Adds ids one after the other, each with one message."""

    def __init__(self, ids: BatchIds) -> None:
        self.ids = ids
        self.offset = 0

    def add(self, owner: str, *batch_ids: object, now: float = NOW) -> None:
        for batch_id in batch_ids:
            self.ids.add(BatchKey(owner, f"{batch_id}"), self.offset, 1, to_micros(now))
            self.offset += 1

    def known(self, owner: str, *batch_ids: object) -> list[object]:
        return [each for each in batch_ids if self.ids.find(BatchKey(owner, f"{each}"), to_micros(NOW))]


def test_the_owner_with_most_ids_loses_its_oldest() -> None:
    filling = Filling(ids_of(10))
    filling.add("alice", *range(3))
    filling.add("bob", *range(100))
    assert filling.known("alice", *range(3)) == [0, 1, 2]
    assert filling.known("bob", *range(100)) == [*range(93, 100)]
    filling.add("carol", *range(100))
    assert filling.known("alice", *range(3)) == [0, 1, 2]
    assert len(filling.known("bob", *range(100))) in (3, 4) and 99 in filling.known("bob", *range(100))
    assert len(filling.ids) == 10


def test_many_identities_are_bounded_as_well() -> None:
    filling = Filling(ids_of(100))
    for number in range(1000):
        filling.add(f"identity {number}", "x")
    assert len(filling.ids) == 100
    assert filling.known("identity 999", "x") == ["x"]
    assert filling.known("identity 0", "x") == []


def test_an_id_belongs_to_its_owner() -> None:
    filling = Filling(ids_of(10))
    filling.add("alice", "x")
    filling.add("bob", "y")
    assert (filling.known("alice", "x", "y"), filling.known("bob", "x", "y")) == (["x"], ["y"])
    filling.ids.forget(BatchKey("bob", "x"))
    assert filling.known("alice", "x")
    filling.add(UNOWNED, "old")
    assert filling.known("alice", "old") == filling.known("bob", "old") == ["old"]


def test_ids_expire() -> None:
    filling = Filling(ids_of(10, seconds=5.0))
    filling.add("alice", "x", "y", now=NOW - 10)
    filling.add("bob", "x", now=NOW - 6)
    assert filling.known("bob", "x") == []
    filling.add("bob", "z", now=NOW)
    assert len(filling.ids) == 1


adds = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 9), st.integers(0, 3)), max_size=120)


@settings(deadline=None)
@given(adds, st.integers(0, 12), st.integers(1, 30), st.integers(0, 120))
@example([("b", 0, 0), ("d", 0, 0), ("a", 0, 2), ("a", 1, 0), ("c", 0, 3)], 3, 4, 120)
@example([("b", 0, 0), ("a", 0, 1), ("a", 1, 0), ("a", 0, 0), ("c", 0, 2)], 2, 2, 120)
def test_restored_ids_behave_like_live_ones(
    added: list[tuple[str, int, int]], most: int, seconds: int, moment: int
) -> None:
    """From the end of a log that was stopped, and from snapshots and the rows behind them, as after a crash."""
    live = ids_of(most, seconds)
    snapshot = to_batches([])
    behind: list[BatchRow] = []
    micros = 0
    for offset, (owner, number, later) in enumerate(added):
        micros += later * MICROS
        key = BatchKey(owner, f"{number}-{offset // 7}")
        if live.find(key, micros):
            continue  # a known batch publishes nothing
        live.add(key, offset, 1, micros)
        behind.append(BatchRow(key.batch_id, offset, 1, micros, key.owner))
        if offset == moment:
            live = BatchIds(most, seconds, live.rows())
        if offset % 10 == 9:
            snapshot, behind = trimmed(snapshot, behind, most, seconds), []
    crashed = BatchIds(most, seconds, batch_rows(trimmed(snapshot, behind, most, seconds)))
    assert list(crashed.rows()) == list(live.rows())
    assert len(live) <= most


def trimmed(snapshot: pa.Table, behind: list[BatchRow], most: int, seconds: float) -> pa.Table:
    return trim_batches(pa.concat_tables([snapshot, to_batches(behind)]), most, seconds)


@settings(deadline=None)
@given(adds, st.integers(1, 12))
def test_an_owner_with_few_ids_keeps_them(added: list[tuple[str, int, int]], most: int) -> None:
    """No owner with fewer ids than its equal share loses one."""
    live = ids_of(most)
    owners = {owner for owner, _, _ in added}
    counts: Counter[str] = Counter()
    for offset, (owner, _, _) in enumerate(added):
        live.add(BatchKey(owner, f"{offset}"), offset, 1, 0)
        counts[owner] += 1
    durable = Counter(row.owner for row in live.rows())
    for owner in owners:
        share = most // len(owners)
        assert durable[owner] >= min(counts[owner], share)


@pytest.mark.parametrize("most", [0, 1])
def test_a_limit_of_zero_or_one(most: int) -> None:
    filling = Filling(ids_of(most))
    filling.add("alice", *range(5))
    filling.add("bob", *range(5))
    assert len(filling.ids) == most


# -- clients ---------------------------------------------------------------------------------------------


def test_of_each_client_the_last_numbers_are_remembered() -> None:
    ids = BatchIds(limit=1000, seconds=60)
    for number in range(500):
        for client in ("one", "two"):
            ids.add(BatchKey("o", f"polycast/client/{client}/{number}"), number, 1, number)
        ids.add(BatchKey("o", f"mine/{number % 5}/{number}"), number, 1, number)
    rows = [row.batch_id for row in ids.rows()]
    assert [each for each in rows if "one" in each] == [f"polycast/client/one/{n}" for n in range(436, 500)]
    assert sum("mine" in each for each in rows) == 500
    again = BatchIds(1000, 60, ids.rows())
    assert [row.batch_id for row in again.rows()] == rows
