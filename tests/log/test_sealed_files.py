"""Sealing: all rows become Parquet that other programs can read."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from log.log_builder import SEED, LogBuilder, digest, flip, time_of, to_rows
from polycast.errors import LogDamageError
from polycast.log.files.columns import SourcedBurst, new_packer
from polycast.log.files.disk import Disk
from polycast.log.files.encoding import encode_bursts
from polycast.log.files.format import NOTHING_BEFORE, SCHEMA
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader
from polycast.log.upkeep import sealing
from polycast.log.upkeep.sealing import seal
from polycast.model import Buffer, Burst, Format


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path)


def sealed(path: Path, **more: Any) -> Path:
    target = seal(path, **more)
    assert target is not None
    return target


def test_all_rows_are_there_and_the_hot_file_is_not(builder: LogBuilder, tmp_path: Path) -> None:
    target = sealed(builder.segment(3, 1, 200))
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000000.parquet"]
    table = pq.read_table(target)
    assert table.schema.remove_metadata() == SCHEMA
    assert to_rows(table.to_batches()) == builder.rows


def test_the_metadata_of_a_sealed_segment(builder: LogBuilder) -> None:
    builder.segment(5)
    before = builder.checksum
    builder.begin()
    builder.skip(10, "unclean stop")
    builder.add(2, batches=[("id-1", 15, 2, "alice")])
    builder.add(4)
    builder.skip(3, "not stored: disk full")
    builder.add(1)
    path = builder.folder / "00000000000000000005.arrows"
    builder.end()
    metadata = json.loads(pq.read_metadata(sealed(path)).metadata[b"polycast"])
    groups = metadata.pop("row_groups")
    content = metadata.pop("content")
    assert metadata == {
        "version": 2, "seed": f"{SEED:016x}", "first": 15, "next": 25, "count": 7,
        "previous": before, "checksum": builder.checksum,
        "gaps": [
            {"first": 5, "next": 15, "reason": "unclean stop"},
            {"first": 21, "next": 24, "reason": "not stored: disk full"},
        ],
        "batches": [["id-1", 15, 2, "alice", 0]], "position": None,
        "first_time": time_of(15), "last_time": time_of(24),
    }  # fmt: skip
    assert [(group["first"], group["next"], group["count"]) for group in groups] == [(15, 25, 7)]
    assert content == xxhash.xxh3_128_hexdigest("".join(groups[0]["columns"]).encode())


def test_the_first_group_of_a_log_has_no_previous(builder: LogBuilder) -> None:
    with SealedReader(sealed(builder.segment(1))) as reader:
        assert reader.metadata.previous == NOTHING_BEFORE


def test_digests_are_what_the_documentation_says(builder: LogBuilder) -> None:
    """Computed from values."""
    target = sealed(builder.segment(40))
    with SealedReader(target) as reader:
        [group] = reader.metadata.row_groups
    for name, found in zip(SCHEMA.names, group.columns, strict=True):
        values = [row[name] for row in builder.rows]
        if isinstance(values[0], int):
            data = b"".join(value.to_bytes(8, "little", signed=True) for value in values)
        else:
            texts = [value.encode() if isinstance(value, str) else value for value in values]
            data = b"".join(len(text).to_bytes(4, "little") for text in texts) + b"".join(texts)
        assert found == xxhash.xxh3_64_hexdigest(data), name


def test_row_groups_follow_the_offsets_and_stay_small(
    builder: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 50)
    target = sealed(builder.segment(30, 30, 170, 5))
    metadata = pq.read_metadata(target)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sum(sizes) == 235
    assert max(sizes) < 100
    column = metadata.row_group(1).column(0)
    assert column.statistics.min == sizes[0]
    assert column.statistics.max == sizes[0] + sizes[1] - 1
    assert to_rows(pq.read_table(target).to_batches()) == builder.rows


def test_row_groups_of_large_payloads_hold_few_rows(builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_BYTES", 10_000)
    target = sealed(builder.segment(20, payload=b"x" * 3000))
    metadata = pq.read_metadata(target)
    assert metadata.num_row_groups >= 4
    assert to_rows(pq.read_table(target).to_batches()) == builder.rows


def test_row_groups_of_long_topics_hold_few_rows_too(builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot segment has them compressed: they are counted by what a reader decodes."""
    monkeypatch.setattr(sealing, "ROW_GROUP_BYTES", 10_000)
    path, packer, topic = builder.begin(), new_packer(), b"t" * 1000
    for first in range(0, 100, 20):
        burst = Burst.of("hermod", [(topic, b"", Format.BYTES)] * 20)
        burst.offset, burst.sequences = first, [first]
        pieces = [SourcedBurst(burst, b"", 0)]
        builder.write(encode_bursts(pieces, packer, builder.layout, builder.checksum, first))
    builder.end()
    table = pq.ParquetFile(sealed(path))
    groups = [table.read_row_group(number) for number in range(table.num_row_groups)]
    assert sum(group.num_rows for group in groups) == 100
    assert max(group.nbytes for group in groups) < 20_000


def test_encodings(builder: LogBuilder) -> None:
    metadata = pq.read_metadata(sealed(builder.segment(1000)))
    columns = {SCHEMA.names[i]: metadata.row_group(0).column(i) for i in range(8)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    for name in ("offset", "sequence", "time"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
        assert columns[name].physical_type == "INT64"
    for name in ("topic", "dialect", "format", "source"):
        assert columns[name].has_dictionary_page
    assert all((column.statistics is not None) == (name != "payload") for name, column in columns.items())


def test_duckdb_and_polars_read_the_same(builder: LogBuilder, tmp_path: Path) -> None:
    sealed(builder.segment(300, 7))
    sealed(builder.segment(50))
    expected = digest(row["payload"] for row in builder.rows)
    pattern = str(tmp_path / "*.parquet")
    rows = duckdb.execute(
        f'select "offset", topic, sequence, payload from \'{pattern}\' order by "offset"'
    ).fetchall()
    assert [row[:3] for row in rows] == [(row["offset"], row["topic"], row["sequence"]) for row in builder.rows]
    assert digest(row[3] for row in rows) == expected
    described = duckdb.execute(f"describe select * from '{pattern}'").fetchall()
    types = {row[0]: row[1] for row in described}
    assert types["time"] == "TIMESTAMP WITH TIME ZONE"
    assert types["payload"] == "BLOB"
    frame = polars.read_parquet(pattern).sort("offset")
    assert frame["offset"].to_list() == [row["offset"] for row in builder.rows]
    assert digest(frame["payload"].to_list()) == expected
    assert frame["time"].dt.epoch("us").to_list() == [row["time"] for row in builder.rows]


def test_a_segment_without_messages_is_not_sealed(builder: LogBuilder, tmp_path: Path) -> None:
    path = builder.segment()
    assert seal(path) is None
    assert list(tmp_path.iterdir()) == [path]


def test_values_that_are_empty_or_long(builder: LogBuilder) -> None:
    builder.begin()
    builder.add(3, payload=b"")
    builder.add(1, payload=os.urandom(3 * 1024 * 1024))
    builder.add(2, topics=("", "höhe"))
    builder.end()
    target = sealed(builder.folder / "00000000000000000000.arrows")
    assert to_rows(pq.read_table(target).to_batches()) == builder.rows


# -- what can go wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [0, 1, 2])
def test_damage_leaves_everything_as_it_was(builder: LogBuilder, tmp_path: Path, group: int) -> None:
    path = builder.segment(10, 10, 10)
    flip(path, builder.positions[group] + 800)
    before = path.read_bytes()
    with pytest.raises(LogDamageError, match=rf"byte {builder.positions[group]:,}: "):
        seal(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_groups_behind_zeros_are_damage(builder: LogBuilder) -> None:
    """A block of zeros in the middle looks like the end."""
    path = builder.segment(10, 10, 10)
    data = bytearray(path.read_bytes())
    begin, end = builder.positions[1:]
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    with pytest.raises(LogDamageError, match="groups follow"):
        seal(path)


class FullDisk(Disk):
    def __init__(self, room: int) -> None:
        self._room = room

    def write_pieces(self, fd: int, pieces: Sequence[Buffer], position: int) -> None:
        self._room -= sum(map(len, pieces))
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_pieces(fd, pieces, position)


@pytest.mark.parametrize("room", [0, 10, 1000])
def test_a_full_disk_leaves_everything_as_it_was(builder: LogBuilder, tmp_path: Path, room: int) -> None:
    path = builder.segment(1000)
    with pytest.raises(OSError, match="No space left") as failed:
        seal(path, disk=FullDisk(room))
    assert failed.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == [path]
    assert len(list(HotReader(path).groups())) == 1


class WrongDisk(Disk):
    """Corrupts one byte."""

    def __init__(self, at: int) -> None:
        self._at = at

    def write_pieces(self, fd: int, pieces: Sequence[Buffer], position: int) -> None:
        data = bytearray(b"".join(pieces))
        if position <= self._at < position + len(data):
            data[self._at - position] ^= 0x10
        super().write_pieces(fd, [data], position)


@pytest.mark.parametrize("at", [10, 300, 700])
def test_the_hot_file_stays_until_the_sealed_one_was_read_again(
    builder: LogBuilder, tmp_path: Path, at: int
) -> None:
    path = builder.segment(100)
    with pytest.raises(OSError, match="differs from the rows that were written"):
        seal(path, disk=WrongDisk(at))
    assert list(tmp_path.iterdir()) == [path]


class Order(Disk):
    """Records the order of calls."""

    def __init__(self, hot: Path) -> None:
        self.seen: list[str] = []
        self._hot = hot

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.seen.append("sync")

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        self.seen.append(f"sync folder, hot: {self._hot.exists()}")

    def rename(self, old: Path, new: Path) -> None:
        self.seen.append(f"rename {old.name} {new.name}")
        super().rename(old, new)


def test_the_order_that_loses_nothing(builder: LogBuilder) -> None:
    path = builder.segment(100)
    disk = Order(path)
    sealed(path, disk=disk)
    name = "00000000000000000000.parquet"
    assert disk.seen == ["sync", f"rename {name}.tmp {name}", "sync folder, hot: True"]


def test_sealing_stops_on_request(builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    path = builder.segment(*[10] * 10)
    steps = iter([False] * 12 + [True])
    assert seal(path, stopped=lambda: next(steps)) is None
    assert list(tmp_path.iterdir()) == [path]


def test_sealing_pauses_according_to_its_share(builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    clock = iter(range(100))
    monkeypatch.setattr(time, "thread_time", lambda: float(next(clock)))
    rests: list[float] = []
    sealed(builder.segment(10, 10), share=0.25, pause=rests.append)
    assert rests == [3.0] * 6  # two groups, each of them read, written and read again, a second each


def test_a_table_that_is_not_a_segment(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(LogDamageError, match="its schema is not the schema of a log"):
        SealedReader(tmp_path / "a.parquet")
    pq.write_table(SCHEMA.empty_table(), tmp_path / "b.parquet")
    with pytest.raises(LogDamageError, match="no metadata of a segment"):
        SealedReader(tmp_path / "b.parquet")
