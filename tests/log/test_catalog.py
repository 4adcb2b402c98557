"""The catalog of the log."""

from __future__ import annotations

import os
from pathlib import Path

from log.log_builder import LogBuilder, flip, to_rows
from polycast.log.files.format import SCHEMA, Gap
from polycast.log.read.catalog import LogCatalog
from polycast.log.read.query import OffsetRange, RowFilter, query_rows, to_ranges
from polycast.log.upkeep.sealing import seal


def all_rows(builder: LogBuilder, start: int = 0, skipped: list[Gap] | None = None) -> list[dict[str, object]]:
    catalog = LogCatalog(builder.folder)
    try:
        ranges = to_ranges(catalog.parts(start, catalog.next()), RowFilter(), start, catalog.next())
        reported: list[Gap] = [] if skipped is None else skipped
        return to_rows(query_rows(builder.folder, ranges, RowFilter(), SCHEMA.names, reported.append))
    finally:
        catalog.close()


def test_the_catalog_follows_a_growing_log(tmp_path: Path) -> None:
    builder, catalog = LogBuilder(tmp_path), LogCatalog(tmp_path)
    assert (catalog.first(), catalog.next()) == (0, 0)
    assert catalog.parts(0, 0) == []
    builder.begin()
    assert catalog.next() == 0
    for count in (1, 5, 30):
        builder.add(count)
        assert catalog.next() == builder.next
    builder.end()
    builder.begin()
    assert catalog.next() == 36
    builder.add(4)
    assert catalog.next() == 40
    builder.end()
    for path in tmp_path.glob("*.arrows"):
        seal(path)
    os.utime(tmp_path, (1, 1))  # long ago: what was listed counts from here on
    assert catalog.next() == 40
    assert [(part.first, part.next) for part in catalog.parts(0, 40)] == [(0, 36), (36, 40)]
    catalog.close()


def test_parts_of_a_range(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.segment(10, 10, payload=bytes(200_000))
    seal(builder.segment(10))
    builder.segment(5)
    catalog = LogCatalog(tmp_path)
    assert [(part.first, part.next) for part in catalog.parts(0, 35)] == [(0, 10), (10, 20), (20, 30), (30, 35)]
    assert [(part.first, part.next) for part in catalog.parts(12, 21)] == [(10, 20), (20, 30)]
    assert catalog.parts(35, 35) == []
    catalog.close()


def test_reading_starts_at_the_position(tmp_path: Path) -> None:
    """Earlier segments do not matter, damaged or not."""
    builder = LogBuilder(tmp_path)
    path = builder.segment(10, 10, 10, payload=bytes(200_000))
    flip(path, builder.positions[0] + 1000)
    catalog = LogCatalog(tmp_path)
    last = to_ranges(catalog.parts(25, 30), RowFilter(), 25, 30)
    catalog.close()
    skipped: list[Gap] = []
    found = to_rows(query_rows(tmp_path, last, RowFilter(), SCHEMA.names, skipped.append))
    assert [row["offset"] for row in found] == list(range(25, 30))
    assert skipped == []


def test_a_wrong_position_is_ignored(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.segment(10, 10)
    catalog = LogCatalog(tmp_path)
    [part] = catalog.parts(0, 20)
    catalog.close()
    assert part.position
    wrong = OffsetRange(12, 20, 1, part.position._replace(byte=part.position.byte + 8))
    found = to_rows(query_rows(tmp_path, [wrong], RowFilter(), SCHEMA.names))
    assert [row["offset"] for row in found] == list(range(12, 20))


def test_readers_report_damage_in_the_middle(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    path = builder.segment(10, 10, 10)
    flip(path, builder.positions[1] + 400)
    skipped: list[Gap] = []
    assert [row["offset"] for row in all_rows(builder, skipped=skipped)] == [*range(10), *range(20, 30)]
    assert [(gap.first, gap.next) for gap in skipped] == [(10, 20)]


def test_a_damaged_head_does_not_hide_later_groups(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    path = builder.segment(10, 10, 10)
    flip(path, builder.positions[1] + 1)
    catalog = LogCatalog(tmp_path)
    assert catalog.next() == 30
    catalog.close()
    skipped: list[Gap] = []
    assert [row["offset"] for row in all_rows(builder, skipped=skipped)] == [*range(10), *range(20, 30)]
    assert [(gap.first, gap.next) for gap in skipped] == [(10, 20)]


def test_an_unreadable_segment_is_one_part(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    path = builder.segment(10)
    builder.segment(10)
    path.write_bytes(b"nothing of ours")
    skipped: list[Gap] = []
    assert [row["offset"] for row in all_rows(builder, skipped=skipped)] == list(range(10, 20))
    assert [(gap.first, gap.next) for gap in skipped] == [(0, 10)]


def test_sealed_while_it_is_read(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    path = builder.segment(10, 10)
    catalog = LogCatalog(tmp_path)
    ranges = to_ranges(catalog.parts(5, 20), RowFilter(), 5, 20)
    seal(path)
    found = to_rows(query_rows(tmp_path, ranges, RowFilter(), SCHEMA.names))
    assert [row["offset"] for row in found] == list(range(5, 20))
    assert [(part.first, part.next) for part in catalog.parts(5, 20)] == [(0, 20)]
    catalog.close()
