"""A stream without messages to read does nothing, whatever else the log gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kit.broker import Broker
from kit.links import free_port
from kit.replay import numbered, publish
from polycast.spark.log_view import SCAN_BYTES
from polycast.spark.pace import LONGEST_SECONDS, SHORTEST_SECONDS, Pace
from polycast.spark.schema import ROWS
from polycast.spark.source import PolycastSource
from polycast.spark.stream import ADVANCE_SECONDS, LogStream


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idle")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker(listen=("hermod.pub",), data=folder, events=True) as running:
        yield running


def put(broker: Broker, topic: str, size: int = 0) -> None:
    with broker.connect("hermod.pub") as peer:
        publish(peer, numbered(topic, range(1), size))


class Stream:
    def __init__(self, clock: Clock, **options: str) -> None:
        found = PolycastSource(options).streamReader(ROWS)
        assert isinstance(found, LogStream)
        found._pace = Pace(lambda: clock.now, clock.sleep)
        self.reader = found
        self.position = found.initialOffset()

    def batch(self) -> list[str] | None:
        """The topics of the next batch; None if there is no reason for one."""
        end = self.reader.latestOffset(self.position, ReadAllAvailable())
        if end == self.position:
            return None
        parts = self.reader.partitions(self.position, end)
        self.position = end
        return [
            topic for part in parts for batch in self.reader.read(part) for topic in batch["topic"].to_pylist()
        ]


@pytest.mark.parametrize("way", ["at", "path"])
@pytest.mark.parametrize("subscribe", [">", "orders.new", "orders.>", "~rders,other"])
def test_messages_of_other_topics_start_no_batch(broker: Broker, folder: Path, way: str, subscribe: str) -> None:
    """Not even the events of the broker, one for each connection."""
    where = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}" if way == "at" else str(folder)
    stream = Stream(clock := Clock(), **{way: where, "subscribe": subscribe})
    for _ in range(3):
        with broker.connect("hermod.pub") as peer:
            publish(peer, numbered("polycast/x", range(1)))
        assert stream.batch() is None
    put(broker, "orders.new")
    assert stream.batch() == ["orders.new"]
    assert stream.batch() is None
    put(broker, "polycast/x")
    assert stream.batch() is None
    clock.now += ADVANCE_SECONDS
    assert stream.reader.reportLatestOffset()["offset"] > stream.position["offset"]
    assert stream.batch() == [], "the position moves on, and nothing is read"
    assert stream.batch() is None
    put(broker, "orders.new")
    put(broker, "polycast/x")
    assert stream.batch() == ["orders.new"]
    stream.reader.stop()


def test_a_limit_counts_from_the_position(broker: Broker, folder: Path) -> None:
    stream = Stream(Clock(), path=str(folder), subscribe="limited")
    start = stream.position["offset"]
    put(broker, "polycast/x")
    put(broker, "limited")
    assert stream.reader.latestOffset(stream.position, ReadMaxRows(1)) == {"offset": start + 1}
    assert stream.batch() == ["limited"]
    stream.reader.stop()


def test_more_than_is_worth_a_search_is_a_reason_for_a_batch(broker: Broker, folder: Path) -> None:
    stream = Stream(Clock(), path=str(folder), subscribe="orders.new")
    put(broker, "polycast/x", SCAN_BYTES + 1)
    assert stream.batch() == []
    stream.reader.stop()


def test_a_trigger_with_an_end_moves_to_it(broker: Broker, folder: Path) -> None:
    stream = Stream(Clock(), path=str(folder), subscribe="orders.new")
    put(broker, "polycast/x")
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == []
    stream.reader.stop()


def test_polls_slow_down_while_nothing_comes() -> None:
    pace = Pace(lambda: clock.now, clock.sleep) if (clock := Clock()) else None
    assert pace
    pace.wait()
    assert clock.pauses == [SHORTEST_SECONDS]
    while clock.now < 60:
        pace.wait()
    assert clock.pauses[-1] == pytest.approx(LONGEST_SECONDS)
    clock.now += 1
    pace.wait()
    assert clock.pauses[-1] == 0, "the last poll is long ago"
    pace.note_messages()
    pace.wait()
    assert clock.pauses[-1] == pytest.approx(SHORTEST_SECONDS)


def test_a_stream_from_a_broker_survives_a_restart(tmp_path: Path) -> None:
    """All polls use one connection."""
    listen = f"--listen=hermod.pub=tcp://127.0.0.1:{free_port()}"
    with Broker(listen, listen=(), data=tmp_path) as broker:
        stream = Stream(Clock(), at=f"tcp://127.0.0.1:1,tcp://127.0.0.1:{broker.ports['hermod.pub']}")
        put(broker, "a")
        assert stream.batch() == ["a"]
        broker.kill()
    with Broker(listen, listen=(), data=tmp_path) as broker:
        put(broker, "b")
        assert stream.batch() == ["b"]
    stream.reader.stop()
