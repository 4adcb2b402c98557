"""Sources and sinks without work, and through a long restart: no connections, no batches, no loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kit.broker import Broker
from kit.links import free_port
from kit.replay import metrics, numbered, publish, read_messages, subscribe
from polycast.errors import StartError
from polycast.spark import sink
from polycast.spark.broker_view import BrokerView
from polycast.spark.brokers import Brokers
from polycast.spark.schema import ROWS
from polycast.spark.source import PolycastSource
from polycast.spark.stream import LogStream

TASKS = 200
RESTART_SECONDS = 30.0


def rows(*payloads: bytes) -> pa.RecordBatch:
    topics = pa.array(["written"] * len(payloads), pa.string())
    return pa.RecordBatch.from_arrays([topics, pa.array(payloads, pa.binary())], names=["topic", "payload"])


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10**6))
    context = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: next(numbers))
    monkeypatch.setattr(sink, "_task", lambda: context)


def to_sink(at: str, **options: str) -> Any:
    return PolycastSource({"at": at, **options}).writer(ROWS, False)


def accepted(broker: Broker) -> float:
    found = metrics(broker)["polycast_connections_accepted_total"]
    return float(sum(count for labels, count in found.items() if ("listener", "hermod.pub") in labels))


def test_an_empty_task_opens_no_connection(tmp_path: Path, tasks: None) -> None:
    with Broker(data=tmp_path, listen=("hermod.pub", "hermod.sub", "http")) as broker:
        writer = to_sink(f"tcp://127.0.0.1:{broker.ports['hermod.pub']}")
        empty = [writer.write(iter([rows()] * (number % 3))) for number in range(TASKS)]
        writer.commit(empty)
        writer.abort(empty)
        assert accepted(broker) == 0
        writer.commit([*empty, writer.write(iter([rows(), rows(b"x")]))])
        assert accepted(broker) == 2, "the task with rows, and the commit"
        with subscribe(broker, "written", since="earliest") as peer:
            assert [message.payload for message in read_messages(peer, 1)] == [b"x"]


# -- a query that reads its own output -----------------------------------------------------------------------


def to_stream(at: str) -> LogStream:
    found = PolycastSource({"at": at, "subscribe": ">"}).streamReader(ROWS)
    assert isinstance(found, LogStream)
    return found


def batches(stream: LogStream, position: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """The positions after so many polls."""
    for _ in range(count):
        position = stream.latestOffset(position, ReadAllAvailable())
        yield position


def test_the_output_of_a_query_into_a_topic_costs_one_batch(tmp_path: Path) -> None:
    """`sql --into` reads all topics and drops its own output behind the source. Then it rests, although its
    connections are events in the log."""
    with Broker(data=tmp_path, listen=("hermod.pub",), events=True) as broker:
        stream = to_stream(f"tcp://127.0.0.1:{broker.ports['hermod.pub']}")
        start = stream.initialOffset()
        for topic in ("orders", "totals"):
            with broker.connect("hermod.pub") as publisher:
                publish(publisher, numbered(topic, range(1)))
            [start, *others] = batches(stream, start, 5)
            assert others == [start] * 4, "one batch, and then none"
        for _ in range(3):
            broker.connect("hermod.pub").close()
            assert set(map(str, batches(stream, start, 3))) == {str(start)}
        stream.stop()


# -- a clean restart that takes long -------------------------------------------------------------------------


class SlowRestart:
    """A broker that stopped cleanly, and starts again after so many seconds of a clock that only sleeps move."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._listen = f"--listen=hermod.pub=tcp://127.0.0.1:{free_port()}"
        self.now = 0.0
        self.broker = self._start()

    def _start(self) -> Broker:
        return Broker(self._listen, listen=("hermod.sub",), data=self._data).__enter__()

    def __enter__(self) -> SlowRestart:
        return self

    def __exit__(self, *error: object) -> None:
        self.broker.__exit__(None, None, None)

    @property
    def at(self) -> str:
        return f"tcp://127.0.0.1:{self.broker.ports['hermod.pub']}"

    def stop(self) -> None:
        assert self.broker.stop() == 0
        self.broker.__exit__(None, None, None)
        self._up_at = self.now + RESTART_SECONDS

    def sleep(self, seconds: float) -> None:
        before, self.now = self.now, self.now + seconds
        if before < self._up_at <= self.now:
            self.broker = self._start()

    def brokers(self, at: str, retry_seconds: float, **more: Any) -> Brokers:
        return Brokers(at, retry_seconds, clock=lambda: self.now, sleep=self.sleep, **more)


@pytest.fixture
def restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowRestart]:
    with SlowRestart(tmp_path) as made:
        monkeypatch.setattr(sink, "Brokers", made.brokers)
        monkeypatch.setattr("polycast.spark.broker_view.Brokers", made.brokers)
        yield made


def test_a_source_survives_a_clean_restart_of_30_seconds(restart: SlowRestart) -> None:
    view = BrokerView(restart.at, 300)
    with restart.broker.connect("hermod.pub") as publisher:
        publish(publisher, numbered("a", range(5)))
    assert view.next() == 5
    restart.stop()
    assert view.next() == 5, "the log goes on where it ended"
    assert RESTART_SECONDS <= restart.now < RESTART_SECONDS + 10
    view.close()


def test_a_sink_survives_a_clean_restart_of_30_seconds(restart: SlowRestart, tasks: None) -> None:
    """Between a task and the commit, and once more after it: the batch is in the log once."""
    writer = to_sink(restart.at)
    staged = [writer.write(iter([rows(b"%d" % number)])) for number in range(3)]
    restart.stop()
    writer.commit(staged)
    assert restart.now >= RESTART_SECONDS
    restart.stop()
    writer.commit(staged)
    with subscribe(restart.broker, "written", since="earliest") as peer:
        assert sorted(message.payload for message in read_messages(peer, 3)) == [b"0", b"1", b"2"]
        with restart.broker.connect("hermod.pub") as publisher:
            publish(publisher, [("written", b"fence")])
        assert [message.payload for message in read_messages(peer, 1)] == [b"fence"]


def test_less_patience_than_the_restart_takes(restart: SlowRestart, tasks: None) -> None:
    writer = to_sink(restart.at, retrySeconds="20")
    staged = [writer.write(iter([rows(b"x")]))]
    restart.stop()
    with pytest.raises(StartError, match="for 20 s"):
        writer.commit(staged)
    restart.sleep(RESTART_SECONDS)
    writer.commit(staged)
