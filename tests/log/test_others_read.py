"""Other programs read the log while a broker writes and seals at full speed."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kit import hermod
from kit.broker import Broker
from kit.wire import wait_for

TOPICS = ("orders", "stock", "a.b", "höhe")
BATCH = 200
HOT_AT_MOST = 4
SMALL = ("--set=log.segment_bytes=65536", "--set=log.seal_share=1")

Digests = dict[str, tuple[int, str]]
"""Of each topic: the number of messages, and the hash of their payloads in order."""


class Publisher(threading.Thread):
    """Publishes until `ending` is set, no faster than segments are sealed. Computes digests of its messages."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._folder = folder
        self._hashes = {topic: hashlib.sha256() for topic in TOPICS}
        self._counts = dict.fromkeys(TOPICS, 0)
        self.ending = threading.Event()
        self.batches = 0

    def run(self) -> None:
        with self._broker.connect("hermod.pub") as peer:
            while not self.ending.is_set():
                wait_for(self._may_go_on, "hot segments to be sealed")
                messages = [(TOPICS[n % len(TOPICS)], self._payload(n)) for n in range(BATCH)]
                frames = [hermod.message(topic, payload, "") for topic, payload in messages]
                peer.send(hermod.count(BATCH) + b"".join(frames))
                peer.expect(hermod.ok(BATCH))
                for topic, payload in messages:
                    self._hashes[topic].update(payload)
                    self._counts[topic] += 1
                self.batches += 1

    def _may_go_on(self) -> bool:
        return self.ending.is_set() or len(list(self._folder.glob("*.arrows"))) < HOT_AT_MOST

    def _payload(self, number: int) -> bytes:
        return b"%d " % (self.batches * BATCH + number) + bytes(range(number % 256))

    def digests(self) -> Digests:
        return {topic: (self._counts[topic], self._hashes[topic].hexdigest()) for topic in TOPICS}


def digests_of(rows: Iterator[tuple[str, bytes]]) -> Digests:
    hashes = {topic: hashlib.sha256() for topic in TOPICS}
    counts = dict.fromkeys(TOPICS, 0)
    for topic, payload in rows:
        hashes[topic].update(payload)
        counts[topic] += 1
    return {topic: (counts[topic], hashes[topic].hexdigest()) for topic in TOPICS}


def hot_files(folder: Path) -> Iterator[Path]:
    """Hot files without a sealed one; files may disappear meanwhile."""
    for path in sorted(folder.glob("*.arrows")):
        if not path.with_suffix(".parquet").exists():
            yield path


def sealed_files(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("*.parquet"))]


Read = Callable[[Path], Iterator[tuple[int, str, bytes]]]
"""All current rows: offset, topic, payload."""


def read_stream(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        return stream.read_all()


def rows_in(table: pa.Table) -> Iterator[tuple[int, str, bytes]]:
    return zip(*(table[name].to_pylist() for name in ("offset", "topic", "payload")), strict=True)


def with_pyarrow(folder: Path) -> Iterator[tuple[int, str, bytes]]:
    for sealed in sealed_files(folder):
        yield from rows_in(pq.read_table(sealed))
    for path in hot_files(folder):
        try:
            yield from rows_in(read_stream(path))
        except FileNotFoundError:
            continue


def with_dataset(folder: Path) -> Iterator[tuple[int, str, bytes]]:
    if names := sealed_files(folder):
        yield from rows_in(ds.dataset(names, format="parquet").to_table())
    for path in hot_files(folder):
        try:
            yield from rows_in(pa.ipc.open_stream(path.read_bytes()).read_all())
        except FileNotFoundError:
            continue


def with_duckdb(folder: Path) -> Iterator[tuple[int, str, bytes]]:
    with duckdb.connect() as database:
        if sealed_files(folder):
            found = database.execute(f"SELECT \"offset\", topic, payload FROM '{folder}/*.parquet' ORDER BY 1")
            yield from found.fetchall()
        for path in hot_files(folder):
            try:
                hot = read_stream(path)
            except FileNotFoundError:
                continue
            database.register("hot", hot)
            yield from database.execute('SELECT "offset", topic, payload FROM hot ORDER BY 1').fetchall()


def with_polars(folder: Path) -> Iterator[tuple[int, str, bytes]]:
    columns = ["offset", "topic", "payload"]
    if sealed_files(folder):
        yield from pl.read_parquet(f"{folder}/*.parquet", columns=columns).select(columns).iter_rows()
    for path in hot_files(folder):
        try:
            yield from pl.read_ipc_stream(path).select(columns).iter_rows()
        except FileNotFoundError:
            continue


READERS = [with_pyarrow, with_dataset, with_duckdb, with_polars]


def check_some(read: Read, folder: Path) -> int:
    """The number of rows, each of them correct and unique."""
    rows = list(read(folder))
    offsets = [offset for offset, _, _ in rows]
    assert len(offsets) == len(set(offsets))
    for offset, topic, payload in rows:
        number = offset % BATCH
        assert topic == TOPICS[number % len(TOPICS)]
        assert payload == b"%d " % offset + bytes(range(number % 256))
    return len(rows)


@pytest.mark.slow
def test_other_programs_read_while_the_broker_writes(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Broker(*SMALL, data=tmp_path) as broker:
        publisher = Publisher(broker, folder)
        publisher.start()
        wait_for(lambda: len(sealed_files(folder)) > 1, "sealed segments")
        seen = dict.fromkeys(READERS, 0)
        while len(sealed_files(folder)) < 6 or not all(seen.values()):
            for read in READERS:
                seen[read] += check_some(read, folder)
        publisher.ending.set()
        publisher.join()
    for read in READERS:
        assert digests_of((topic, payload) for _, topic, payload in sorted(read(folder))) == publisher.digests()


@pytest.mark.slow
def test_statistics_and_types_suit_other_programs(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Broker(*SMALL, data=tmp_path) as broker:
        publisher = Publisher(broker, folder)
        publisher.start()
        wait_for(lambda: len(sealed_files(folder)) > 2, "sealed segments")
        publisher.ending.set()
        publisher.join()
    with duckdb.connect() as database:
        types = database.execute(f"DESCRIBE SELECT * FROM '{folder}/*.parquet'").fetchall()
        assert [(name, kind) for name, kind, *_ in types] == [
            ("offset", "BIGINT"), ("topic", "VARCHAR"), ("sequence", "BIGINT"),
            ("time", "TIMESTAMP WITH TIME ZONE"),
            ("dialect", "VARCHAR"), ("format", "VARCHAR"), ("payload", "BLOB"), ("source", "VARCHAR"),
        ]  # fmt: skip
        counted = database.execute(f"SELECT count(*) FROM '{folder}/*.parquet' WHERE topic = 'orders'").fetchone()
    frame = pl.scan_parquet(f"{folder}/*.parquet").filter(pl.col("topic") == "orders").collect()
    assert counted == (len(frame),)
    assert frame["sequence"].to_list() == list(range(len(frame)))
    assert frame.schema["time"] == pl.Datetime("us", "UTC") and frame.schema["payload"] == pl.Binary
