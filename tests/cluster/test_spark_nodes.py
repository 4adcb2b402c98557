"""The data source for Spark at the nodes of a cluster, without Spark: what its driver and its tasks call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cluster.trio import Trio
from kit.replay import numbered, publish
from polycast.spark.partitions import LogPartition
from polycast.spark.schema import ROWS
from polycast.spark.source import PolycastSource
from polycast.spark.stream import LogStream

COUNT = 3000


@pytest.fixture
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with Trio(tmp_path_factory.mktemp("trio")) as running:
        yield running


def open_stream(at: str) -> LogStream:
    options = {"at": at, "subscribe": "numbers", "startingOffsets": "earliest", "minPartitions": "3"}
    return PolycastSource(options).streamReader(ROWS)  # type: ignore[return-value]


def read_on(stream: LogStream, start: dict[str, int]) -> tuple[list[Any], dict[str, int]]:
    """The rows of one batch, and its end."""
    end = stream.latestOffset(start, ReadAllAvailable())
    partitions = stream.partitions(start, end)
    assert [part.number for part in partitions if isinstance(part, LogPartition)] == [0, 1, 2]
    rows = [row for part in partitions for batch in stream.read(part) for row in batch.to_pylist()]
    return [(row["sequence"], int(row["payload"])) for row in rows], end


def test_a_stream_goes_on_at_other_nodes_where_it_was(trio: Trio) -> None:
    addresses = {name: f"tcp://127.0.0.1:{node.ports['hermod.pub']}" for name, node in trio.nodes.items()}
    stream = open_stream(",".join(addresses.values()))
    with trio.nodes["b"].connect("hermod.pub") as peer:
        publish(peer, numbered("numbers", range(COUNT)))
    trio.catch_up()
    first, end = read_on(stream, stream.initialOffset())
    trio.kill("a")
    with trio.nodes["c"].connect("hermod.pub") as peer:
        publish(peer, numbered("numbers", range(COUNT, 2 * COUNT)))
    trio.catch_up()
    second, _ = read_on(stream, end)
    other = open_stream(addresses["c"])
    moved, _ = read_on(other, end)  # as from a checkpoint
    assert first + second == [(number, number) for number in range(2 * COUNT)]
    assert moved == second
    stream.stop()
    other.stop()
    trio.start("a")
    trio.catch_up()
    for name in trio.nodes:
        options = {"path": str(trio.folder / name), "subscribe": "numbers", "endingOffsets": str(end["offset"])}
        reader: Any = PolycastSource(options).reader(ROWS)
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        assert [(row["sequence"], int(row["payload"])) for row in rows] == first
