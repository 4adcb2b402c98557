"""Cells: invariants that the driver relies on."""

from __future__ import annotations

import msgspec
import pytest

from polycast.bench.acked_publishing import window_blocks
from polycast.bench.cells import CELLS, LIVE_CELLS, LOG_CELLS, STORE_BATCH, Cell, choose_cells
from polycast.bench.delays import Percentiles
from polycast.bench.driver import cycles_per_chunk, window_chunks
from polycast.bench.job import Job, Outcome
from polycast.bench.pump import Flow
from polycast.bench.wires import DIALECTS, WIRES
from polycast.errors import UsageError


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_no_topic_contains_another(cell: Cell) -> None:
    names = cell.topic_names
    assert len(set(names)) == cell.topics
    assert len({len(name) for name in names}) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_every_subscriber_receives_the_same_bytes(cell: Cell, wire: str) -> None:
    expected = {
        sum(len(WIRES[wire].delivered(topic, b"", number, 0)) for number, topic in enumerate(topics, 1))
        for topics in (cell.topics_of(subscriber) for subscriber in range(cell.subscribers))
    }
    assert len(expected) == 1


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_deliveries_per_cycle(cell: Cell) -> None:
    subscriptions = sum(len(cell.topics_of(subscriber)) for subscriber in range(cell.subscribers))
    assert cell.deliveries_per_cycle == subscriptions


@pytest.mark.parametrize("size", [0, 1, 16, 100, 16384])
def test_payload_size(size: int) -> None:
    assert len(Cell("x", "x", payload_bytes=size).payload) == size


def test_own_topics_wrap_around() -> None:
    cell = Cell("x", "x", topics=2, subscribers=3, spread="own")
    assert [cell.topics_of(number) for number in range(3)] == [["topic0000"], ["topic0001"], ["topic0000"]]


def test_choose_cells_keeps_the_order_of_the_list() -> None:
    assert [cell.name for cell in choose_cells(["16B", "1:1"])] == ["1:1", "16B"]
    assert choose_cells(None) == list(CELLS)


def test_every_dialect_is_in_the_cells_that_compare_them() -> None:
    dialects = {cell.name: cell.dialects for cell in LIVE_CELLS}
    for name in ("1:1", "1:100", "1000-topics", "16KiB"):
        assert dialects.pop(name) == DIALECTS
    assert dialects.pop("100-own") == ("simplest", "ubre", "hermod", "fanout")
    assert set(dialects.values()) == {("simplest",)}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_every_declared_dialect_suits_its_cell(cell: Cell) -> None:
    assert all(map(cell.suits, cell.dialects))


def test_cells_of_delays_have_a_rate_and_longer_turns() -> None:
    rates = {(cell.rate, cell.subscribers) for cell in CELLS if cell.kind == "open-loop"}
    assert rates == {(1_000, 1), (1_000, 10), (50_000, 1), (50_000, 10)}
    assert all(bool(cell.rate) == (cell.seconds(1.0) > 1) for cell in CELLS)


def test_named_dialects_are_in_every_cell_that_suits_them() -> None:
    cells = {cell.name: cell.dialects for cell in choose_cells(["1:1", "16B", "100-own"], ["nanomsg", "ubre"])}
    assert cells == {"1:1": ("ubre", "nanomsg"), "16B": ("ubre", "nanomsg"), "100-own": ("ubre",)}


def test_a_cell_that_suits_none_of_the_dialects_is_left_out() -> None:
    assert [cell.name for cell in choose_cells(["1:1", "100-own"], ["nanomsg"])] == ["1:1"]
    with pytest.raises(UsageError, match="none of these cells"):
        choose_cells(["100-own"], ["nanomsg"])


def test_kinds_of_one_dialect_are_left_out_for_the_others() -> None:
    names = ["logged-1:1", "acked", "acked-100", "acked-turns", "replay", "start"]
    assert [cell.name for cell in choose_cells(names, ["simplest"])] == ["logged-1:1"]
    assert [cell.name for cell in choose_cells(names, ["hermod", "fanout"])] == names
    with pytest.raises(UsageError, match="none of these cells") as caught:
        choose_cells(["acked"], ["simplest"])
    assert "only hermod acknowledges" in caught.value.hint


@pytest.mark.parametrize("cell", LOG_CELLS, ids=lambda cell: cell.name)
def test_a_window_is_whole_batches(cell: Cell) -> None:
    assert cell.window % cell.batch == 0
    assert cell.stored % (cell.topics * STORE_BATCH) == 0


def test_another_number_in_the_log_is_rounded_up_to_whole_batches() -> None:
    stored = {cell.name: cell.storing(10_001).stored for cell in CELLS}
    assert (stored["replay"], stored["start"], stored["acked"], stored["1:1"]) == (10_100, 20_000, 0, 0)


def test_unknown_dialect_lists_the_known() -> None:
    with pytest.raises(UsageError, match="'nats'") as caught:
        choose_cells(None, ["nats"])
    assert caught.value.hint == "known are simplest, ubre, hermod, nanomsg, fanout"


def test_unknown_cell_lists_the_known() -> None:
    with pytest.raises(UsageError, match="'1:2'") as caught:
        choose_cells(["1:1", "1:2"])
    assert all(cell.name in caught.value.hint for cell in CELLS)


def test_a_chunk_is_at_least_one_cycle() -> None:
    assert cycles_per_chunk(Cell("x", "x", topics=1000)) == 1
    assert cycles_per_chunk(Cell("x", "x", payload_bytes=16384)) == 3


def test_window_is_the_same_for_the_fast_and_smaller_for_the_slow() -> None:
    job = Job("nats", 1, 1, CELLS[0], seconds=1.0)
    full = window_chunks(job, Flow(chunks=1000, elapsed=1.0))
    assert full == window_chunks(job, Flow(chunks=9999, elapsed=1.0)) == 16
    assert window_chunks(job, Flow(chunks=5, elapsed=1.0)) == 5
    assert window_chunks(job, Flow(chunks=1, elapsed=9.0)) == 2


def test_publishers_too_get_smaller_windows_when_slow() -> None:
    cells = {cell.name: Job("hermod", 1, 1, cell, seconds=1.0) for cell in CELLS}
    assert window_blocks(cells["acked"], Flow(chunks=8_000, elapsed=1.0)) == 10
    assert window_blocks(cells["acked"], Flow(chunks=24, elapsed=1.0)) == 3
    assert window_blocks(cells["acked"], Flow(chunks=1, elapsed=9.0)) == 1
    assert window_blocks(cells["acked-100"], Flow(chunks=8_000, elapsed=1.0)) == 10
    assert window_blocks(cells["acked-turns"], Flow(chunks=8_000, elapsed=1.0)) == 1


def test_job_and_outcome_survive_json() -> None:
    job = Job("nats", 1, 2, CELLS[-1], seconds=0.5)
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job
    outcome = Outcome(published=3, delivered=6, elapsed=0.5, window=9, delays=Percentiles(1.0, 2.0, 3.0))
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome
    assert outcome.rate == 12.0
