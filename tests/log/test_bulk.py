"""Bulk batches: the same rows as from bursts, in a group of their own, with reserved offsets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.numbering import NumberingHub
from crash.log_checks import check_log, read_with_pyarrow, read_with_reader
from kit.wire import wait_for
from log.log_rig import NOW, OWNER, FaultyDisk, LogRig, open_rig, reserve_few
from log.numbered_bursts import to_batch
from polycast.log import log
from polycast.log.files import hot
from polycast.log.files.columns import SourcedBurst
from polycast.log.files.format import BatchEntry
from polycast.log.files.hot import HotReader
from polycast.log.times import to_micros
from polycast.log.write import bulk
from polycast.log.write.bulk import STAGED_SCHEMA, Bulk, NumberedBulk
from polycast.model import BatchKey, Format

Row = tuple[str, bytes, str | None]
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "é", ""]),
        st.binary(max_size=5),
        st.sampled_from([None, *(format_.value for format_ in Format)]),
    ),
    min_size=1,
)


def to_parts(*parts: list[Row]) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_arrays([_column(part, number) for number in range(3)], schema=STAGED_SCHEMA)
        for part in parts
    ]


def _column(part: list[Row], place: int) -> pa.Array:
    return pa.array([row[place] for row in part], STAGED_SCHEMA.field(place).type)


def to_bulk(*parts: list[Row]) -> Bulk:
    return bulk.to_bulk("hermod", bulk.to_columns(to_parts(*parts)))


def number(hub: NumberingHub, batch: Bulk) -> NumberedBulk:
    return NumberedBulk(batch, *hub.number_bulk(batch))


def put(rig: LogRig, batch: Bulk, batch_id: str = "id") -> NumberedBulk:
    numbered = number(rig.hub, batch)
    key = BatchKey(OWNER, batch_id)
    rig.log.batches.add(key, numbered.offset, len(numbered), to_micros(NOW))
    rig.log.append_bulk(batch, numbered.offset, numbered.sequences, "me", to_micros(NOW), key)
    return numbered


def large(count: int, size: int = 10) -> Bulk:
    return to_bulk([(f"t{number % 3}", (b"%d" % number).ljust(size), None) for number in range(count)])


@settings(deadline=None)
@given(rows, rows, rows)
def test_bulk_equals_burst(before: list[Row], one: list[Row], two: list[Row]) -> None:
    slow, fast = NumberingHub(), NumberingHub()
    me = slow.join(None)
    first = bulk.to_burst("hermod", bulk.to_columns(to_parts(before)))
    [durable] = slow.publish(first, me).bursts
    number(fast, to_bulk(before))
    [burst] = slow.publish(bulk.to_burst("hermod", bulk.to_columns(to_parts(one, two))), me).bursts
    assert burst.offset == len(durable)
    made = bulk.to_rows(number(fast, to_bulk(one, two)), b"source", 7)
    made.validate(full=True)
    assert made.equals(to_batch([SourcedBurst(burst, b"source", 7)]))
    assert slow.ledger.next_offset == fast.ledger.next_offset
    known = [{t.name: (t.next_sequence, t.last_offset) for t in hub.router.topics} for hub in (slow, fast)]
    assert known[0] == known[1]


def test_a_bulk_batch_is_a_group_of_its_own(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        rig.append(("t0", b"before"))
        put(rig, large(100))
        rig.append(("t0", b"behind"), batch_id="other")
        put(rig, large(50), "second")
        while rig.wait_durable().next < 152:
            pass
        check_log(*read_with_pyarrow(rig.folder))
        [file] = rig.folder.glob("*.arrows")
        reader = HotReader(file)
        headers = [group.header for group in reader.groups()]
        reader.close()
    alone = [header for header in headers if header.count in (50, 100)]
    expected = [
        BatchEntry("id", 1, 100, OWNER, to_micros(NOW)),
        BatchEntry("second", 102, 50, OWNER, to_micros(NOW)),
    ]
    assert [header.batches for header in alone] == [[batch] for batch in expected]


def test_a_bulk_batch_is_not_in_memory(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        rig.fill(3)
        assert rig.log.tail_first == 0
        put(rig, large(100))
        assert rig.log.tail_first == rig.log.next == 103
        rig.append(("a", b"x"))
        assert rig.log.tail_first == 103
        assert [entry.first for entry in rig.log.tail(103)] == [103]
        while rig.wait_durable().next < 104:
            pass
        assert rig.log.tail_first == 103


def test_a_written_bulk_batch_does_not_stay_in_memory(tmp_path: Path) -> None:
    """Even if no other message follows."""
    with open_rig(tmp_path) as rig:
        before = pa.total_allocated_bytes()
        put(rig, large(3000, 1000))
        assert not rig.wait_durable().reason
        wait_for(lambda: pa.total_allocated_bytes() - before < 1_000_000, "the memory of the batch")


def test_single_messages_in_memory_count_with_their_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "TAIL_BYTES", 10 * log.ENTRY_BYTES)
    with open_rig(tmp_path) as rig:
        for _ in range(30):
            assert not rig.publish(("a", b"x")).reason
        assert rig.log.next - rig.log.tail_first == 9


def test_more_offsets_are_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)
    with open_rig(tmp_path) as rig:
        assert not rig.log.has_offsets(5000)
        assert rig.reserve(5000) == ""
        assert rig.log.has_offsets(5000)
        put(rig, large(5000))
        assert not rig.wait_durable().reason
        rig.fill(3)
        image = rig.crash(tmp_path)
    with open_rig(image) as reopened:
        assert reopened.log.next >= 5003
        assert reopened.find("id", NOW)
        assert len(read_with_reader(reopened.folder)) == 5003


def test_a_bad_disk_refuses_to_reserve_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve_few(monkeypatch)
    disk = FaultyDisk()
    with open_rig(tmp_path, disk) as rig:
        disk.fail("write", "state.json")
        assert rig.reserve(5000) == "Input/output error"
        assert not rig.log.has_offsets(5000)
        disk.heal()


def test_a_lost_batch_can_be_repeated(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with open_rig(tmp_path, disk) as rig:
        rig.fill(1)
        disk.fail("write", ".arrows")
        put(rig, large(100))
        assert rig.wait_durable().reason
        assert not rig.find("id", NOW)
        disk.heal()
        put(rig, large(100))
        assert not rig.wait_durable().reason
        assert rig.find("id", NOW)
        found, gaps = read_with_pyarrow(rig.folder)
        assert [(gap.first, gap.next) for gap in gaps] == [(1, 101)]
        assert [row.offset for row in found] == [0, *range(101, 201)]


def test_a_large_group_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "MAPPED_BYTES", 100_000)
    monkeypatch.setattr(hot, "CHUNK_BYTES", 1000)
    with open_rig(tmp_path) as rig:
        rig.fill(5)
        put(rig, large(5000, 100))
        rig.wait_durable()
        rig.fill(5)
        [file] = rig.folder.glob("*.arrows")
        before = pa.total_allocated_bytes()
        reader = HotReader(file)
        groups = list(reader.groups())
        reader.close()
        assert sum(group.header.count for group in groups) == 5010
        assert pa.total_allocated_bytes() - before < 100_000
        offsets = [offset for group in groups for offset in group.batch["offset"].to_pylist()]
        assert offsets == list(range(5010))
        wait_for(lambda: not groups[5].batch.validate(full=True), "a whole batch")


@pytest.mark.parametrize(("column", "source"), [("topic", 10), ("payload", 10), ("source", 10_000)])
def test_a_batch_that_is_too_large_for_a_column(monkeypatch: pytest.MonkeyPatch, column: str, source: int) -> None:
    monkeypatch.setattr(bulk, "COLUMN_LIMIT_BYTES", 1000)
    row = ("t" * (20 if column == "topic" else 1), b"p" * (20 if column == "payload" else 1), None)
    few, many = to_parts([row]), to_parts([row] * 30, [row] * 30)
    assert bulk.overflow(few, b"s" * min(source, 10)) is None
    found = bulk.overflow(many, b"s" * source)
    assert found and found[0] == column and found[1] > 1000
