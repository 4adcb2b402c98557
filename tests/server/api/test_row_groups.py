"""`polycast/rows` with `row_groups`: whole row groups as they are in the file, where a request covers them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from log.log_builder import LogBuilder, Row, flip, half_sealed, to_rows
from polycast.log.files.format import SCHEMA
from polycast.log.files.hot import GroupPosition
from polycast.log.files.sealed import SealedReader
from polycast.log.read import catalog
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import finish
from polycast.log.upkeep import sealing
from polycast.server.api import log_rows
from polycast.server.api.row_groups import PATTERNS_AT_MOST
from polycast.server.api.rows_query import RowsRequest, to_query

QUEUE_BYTES = 32 * 1024 * 1024


def ask(builder: LogBuilder, first: int, after: int, queue_bytes: int = QUEUE_BYTES, **more: Any) -> pa.Table:
    request = RowsRequest(first, after, row_groups=True, **more)
    wanted = to_query(request, queue_bytes)
    index = SegmentIndex(builder.folder)
    try:
        return pa.ipc.open_stream(finish(log_rows.read_rows(index, wanted, builder.next))).read_all()
    finally:
        index.close()


def about(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema.metadata[b"polycast"])
    return found


def rows_of(table: pa.Table, columns: list[str]) -> list[Row]:
    """The rows of all row groups, also those outside of the request."""
    [batch] = table.to_batches()
    with SealedReader(Path("broker"), batch) as reader:
        return to_rows([reader.read(number, columns) for number in about(table)["row_groups"]])


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogBuilder:
    """Two sealed segments with row groups of 40, 40 and 20 rows, and a hot segment."""
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 40)
    return half_sealed(tmp_path / "log")


@pytest.mark.parametrize("columns", [list(SCHEMA.names), ["topic", "offset"]])
def test_the_row_groups_of_one_segment(builder: LogBuilder, columns: list[str]) -> None:
    found = ask(builder, 0, 300, columns=columns)
    assert about(found) == {"next": 100, "skipped": [], "row_groups": [0, 1, 2]}
    assert rows_of(found, columns) == [{name: row[name] for name in columns} for row in builder.rows[:100]]
    found = ask(builder, 100, 300)
    assert about(found)["next"] == 200 and rows_of(found, SCHEMA.names) == builder.rows[100:200]


@pytest.mark.parametrize(
    ("first", "after", "numbers", "end"),
    [(0, 40, [0], 40), (20, 40, [0], 40), (0, 60, [0, 1], 60), (15, 99, [0, 1, 2], 99), (0, 59, [0], 40)],
)
def test_requests_that_cover_half_of_a_row_group(
    builder: LogBuilder, first: int, after: int, numbers: list[int], end: int
) -> None:
    assert about(ask(builder, first, after)) == {"next": end, "skipped": [], "row_groups": numbers}


@pytest.mark.parametrize(("first", "after"), [(21, 40), (0, 19), (41, 58), (200, 300), (99, 300)])
def test_the_broker_decodes_smaller_parts_and_the_hot_segment(builder: LogBuilder, first: int, after: int) -> None:
    found = ask(builder, first, after)
    assert about(found) == {"next": after, "skipped": []}
    assert to_rows(found.to_batches()) == builder.rows[first:after]


def test_reading_a_hot_segment_begins_at_the_group(builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups before it are not verified again for each request."""
    monkeypatch.setattr(catalog, "PART_BYTES", 1)
    index = SegmentIndex(builder.folder)
    assert [index.position(offset) for offset in (0, 199, 300)] == [None, None, None]
    assert index.position(250) == GroupPosition(200, 200, builder.positions[0])
    assert index.position(270) == GroupPosition(200, 270, builder.positions[1])
    index.close()
    flip(builder.folder / "00000000000000000200.arrows", builder.positions[0] + 1000)
    found = ask(builder, 270, 300)
    assert about(found) == {"next": 300, "skipped": []} and found.num_rows == 30


@pytest.mark.parametrize("patterns", [[">"], ["~nothing", ">"], ["a", "b.>"]])
def test_patterns_that_all_topics_match(builder: LogBuilder, patterns: list[str]) -> None:
    assert about(ask(builder, 0, 100, patterns=patterns))["row_groups"] == [0, 1, 2]


@pytest.mark.parametrize("patterns", [["a"], ["b.>"], ["nothing"], []])
def test_the_broker_filters_by_selective_patterns(builder: LogBuilder, patterns: list[str]) -> None:
    found = ask(builder, 0, 100, patterns=patterns)
    assert about(found) == {"next": 100, "skipped": []}
    assert set(found["topic"].to_pylist()) == {"a": {"a"}, "b.>": {"b.c"}}.get("".join(patterns), set())


def test_the_broker_decodes_for_many_patterns(builder: LogBuilder) -> None:
    many = [f"={number}" for number in range(PATTERNS_AT_MOST)]
    found = ask(builder, 0, 100, patterns=[*many, "~a", "~b"])
    assert about(found) == {"next": 100, "skipped": []} and found.num_rows == 100
    assert "row_groups" in about(ask(builder, 0, 100, patterns=[*many, ">"]))


def test_the_size_of_a_response(builder: LogBuilder) -> None:
    """The first row group may be larger than `bytes`, but not than the requester's queue."""
    assert about(ask(builder, 0, 100, bytes=1))["row_groups"] == [0]
    assert "row_groups" not in about(ask(builder, 0, 100, queue_bytes=100))


def test_the_broker_decodes_around_a_gap(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.begin()
    builder.add(10)
    builder.skip(5)
    builder.add(10)
    builder.end()
    sealing.seal(tmp_path / "00000000000000000000.arrows")
    builder.skip(5)
    sealing.seal(builder.segment(10))
    found = ask(builder, 0, 25)
    assert "row_groups" not in about(found) and to_rows(found.to_batches()) == builder.rows[:20]
    assert "row_groups" not in about(ask(builder, 25, 40))
    assert about(ask(builder, 30, 40))["row_groups"] == [0]


def test_the_broker_reports_a_damaged_file(builder: LogBuilder) -> None:
    path = builder.folder / "00000000000000000000.parquet"
    flip(path, path.stat().st_size - 1)
    found = about(ask(builder, 0, 100))
    assert "row_groups" not in found and found["skipped"][0]["first"] == 0
