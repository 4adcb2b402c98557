"""The data source returns the same rows from files and from a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from kit.broker import Broker
from kit.replay import numbered, publish
from log.log_builder import LogBuilder, flip, half_sealed
from polycast.errors import LogDamageError, StartError
from polycast.log.files.sealed import SealedReader
from polycast.log.upkeep import sealing
from polycast.spark.schema import ROWS
from polycast.spark.source import PolycastSource
from polycast.spark.stream import LogStream

COUNT = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("remote")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker(listen=("hermod.pub",), data=folder) as running:
        with running.connect("hermod.pub") as peer:
            publish(peer, numbered("a", range(COUNT), 500))
            publish(peer, numbered("b.c", range(COUNT)))
        yield running


def to_options(broker: Broker, **options: object) -> dict[str, str]:
    at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
    return {"at": at} | {name: str(value) for name, value in options.items()}


def read(given: dict[str, str], schema: StructType = ROWS) -> list[dict[str, Any]]:
    """Plans and reads in this process."""
    reader = PolycastSource(given).reader(schema)
    return [row for share in reader.partitions() for row in to_rows(reader.read(share))]


def to_rows(batches: Iterator[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_broker_and_files_have_the_same_rows(broker: Broker, folder: Path) -> None:
    rows = read(to_options(broker))
    assert len(rows) == 2 * COUNT
    assert rows == read({"path": str(folder)})


def test_ranges_patterns_and_columns(broker: Broker) -> None:
    some = read(to_options(broker, startingOffsets=10, endingOffsets=20, minPartitions=3))
    assert [row["offset"] for row in some] == list(range(10, 20))
    assert {row["topic"] for row in read(to_options(broker, subscribe="b.>"))} == {"b.c"}
    late = read(to_options(broker, subscribe="b.c", startingOffsets='{"b.c": 2990}'))
    assert [row["sequence"] for row in late] == list(range(2990, COUNT))
    schema = StructType([field for field in ROWS.fields if field.name in ("topic", "time")])
    assert set(read(to_options(broker, endingOffsets=1), schema)[0]) == {"topic", "time"}
    first = some[0]["time"].isoformat()
    assert read(to_options(broker, startingTimestamp=first))[0]["offset"] <= 10


def test_a_stream_reads_new_messages(broker: Broker) -> None:
    stream = PolycastSource(to_options(broker)).streamReader(ROWS)
    assert isinstance(stream, LogStream)
    begin = stream.initialOffset()
    with broker.connect("hermod.pub") as peer:
        publish(peer, numbered("new", range(5)))
    end = stream.latestOffset(begin, stream.getDefaultReadLimit())
    assert end["offset"] == begin["offset"] + 5
    found = [
        row for share in stream.partitions(begin, end) for batch in stream.read(share) for row in batch.to_pylist()
    ]
    assert [row["payload"] for row in found] == [b"0", b"1", b"2", b"3", b"4"]
    stream.stop()


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogBuilder:
    """Two sealed segments with row groups of 40, 40 and 20 rows, and a hot segment."""
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 40)
    return half_sealed(tmp_path / "log")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": 30, "endingOffsets": 250},
        {"startingOffsets": 15, "endingOffsets": 95, "minPartitions": 2},
        {"subscribe": "a"},
        {"subscribe": "a,b.>", "startingOffsets": '{"a": 20}'},
        {"minPartitions": 7},
    ],
)
@pytest.mark.parametrize("names", [None, ("topic", "payload")])
def test_row_groups_have_the_same_rows(
    sealed: LogBuilder, options: dict[str, object], names: tuple[str, ...] | None
) -> None:
    schema = StructType([field for field in ROWS.fields if names is None or field.name in names])
    data = sealed.folder.parent
    with Broker("--set=log.seal=false", listen=("hermod.pub",), data=data) as running:
        found = read(to_options(running, **options), schema)
        assert found == read({"path": str(data)} | {name: str(value) for name, value in options.items()}, schema)
    assert found


def test_row_groups_that_arrive_damaged_are_decoded_by_the_broker(
    sealed: LogBuilder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    intact = SealedReader.read
    failed: list[int] = []

    def fail_once(reader: SealedReader, number: int, columns: Any = None) -> Any:
        if number == 1 and not failed:
            failed.append(number)
            raise LogDamageError("a byte flipped on its way")
        return intact(reader, number, columns)

    monkeypatch.setattr(SealedReader, "read", fail_once)
    with Broker(listen=("hermod.pub",), data=sealed.folder.parent) as running:
        rows = read(to_options(running))
    assert [row["offset"] for row in rows] == list(range(300)) and failed
    assert "a byte flipped on its way; the broker reads these rows itself" in caplog.text


def test_damaged_row_groups_are_reported(sealed: LogBuilder) -> None:
    with Broker("--set=log.seal=false", listen=("hermod.pub",), data=sealed.folder.parent) as running:
        path = sealed.folder / "00000000000000000000.parquet"
        with SealedReader(path) as reader:
            position = reader.extract([1], ["payload"])["position"][0].as_py()
        flip(path, position + 50)
        with pytest.raises(StartError, match="offsets 40 to 79 cannot be read"):
            read(to_options(running))
        rows = read(to_options(running, failOnDataLoss="false"))
    assert [row["offset"] for row in rows] == [*range(40), *range(80, 300)]


def test_no_broker_and_no_log(broker: Broker) -> None:
    with pytest.raises(StartError, match=r"cannot reach tcp://127.0.0.1:1: .*hint: is a broker running there"):
        read({"at": "tcp://127.0.0.1:1", "retrySeconds": "0"})
    with Broker(listen=("hermod.pub",)) as forgetful, pytest.raises(StartError, match="NoLog"):
        read(to_options(forgetful))


def test_reading_while_the_broker_writes(tmp_path: Path) -> None:
    with Broker(listen=("hermod.pub",), data=tmp_path) as running, running.connect("hermod.pub") as peer:
        assert read({"path": str(tmp_path)}) == []
        publish(peer, numbered("a", range(100)))
        assert [row["offset"] for row in read({"path": str(tmp_path)})] == list(range(100))
