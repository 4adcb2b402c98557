"""Compares `deliveries`, `polycast why` and `polycast estimate` with the deliveries of a real broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kit.broker import Broker
from kit.program import Finished, polycast_here
from kit.wire import wait_for
from polycast.client import Client, connect
from polycast.log.read.query import RowFilter
from polycast.model import Contains, Everything, Exact, Message, Pattern, Prefix, StartPosition
from polycast.pipelines import find
from polycast.pipelines.deliveries.subscription_history import read_events
from polycast.pipelines.runtime.definition import PipelineRun
from polycast.pipelines.runtime.worker_tasks import log_tasks
from spark.here import run_here

LISTEN = ("simplest", "hermod.pub", "hermod.sub", "nanomsg.pub", "fanout.client")
DELIVERIES = find("deliveries")


class Room:
    """A broker and its subscribers."""

    def __init__(self, broker: Broker, data: Path) -> None:
        self.broker = broker
        self.data = data
        self.at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
        self._reported = 0
        self.publisher = connect("hermod", self.at, publishing=True)

    def listen(self, dialect: str, listener: str, pattern: Pattern) -> Client:
        """Returns when the subscription is active."""
        client = connect(dialect, f"tcp://127.0.0.1:{self.broker.ports[listener]}")
        client.subscribe([pattern])
        self.wait_for("subscribe")
        return client

    def wait_for(self, name: str) -> None:
        """Waits for the next event of this kind."""

        def reported_before() -> int:
            return max(
                (t.offset for t in self._events() if t.name == name and t.offset > self._reported), default=0
            )

        self._reported = wait_for(reported_before, f"a {name} in the log")

    def _events(self) -> list[Any]:
        return list(read_events(self.data / "log", 0, 1 << 40))

    def add(self, *topics: str) -> None:
        self.publisher.publish([Message(topic, topic.encode()) for topic in topics])


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    data = tmp_path / "data"
    with Broker(listen=LISTEN, data=data, events=True) as broker:
        room = Room(broker, data)
        with room.publisher:
            yield room


def take(spark: SparkSession, room: Room) -> dict[str, tuple[int, ...]]:
    """Runs the pipeline once; messages, deliveries, subscribers and undelivered by topic."""
    run = PipelineRun(spark, DELIVERIES, room.data, room.at, DELIVERIES.settings(batch_messages=40), once=True)
    DELIVERIES.start(run).awaitTermination()
    rows = pq.read_table(room.data / "deliveries" / "totals.parquet").to_pylist()
    return {row.pop("topic"): tuple(row.values()) for row in rows}


def published(room: Room) -> list[dict[str, Any]]:
    wanted = RowFilter((Prefix("polycast/deliveries/"),))
    return [
        json.loads(payload)
        for part in log_tasks(room.data / "log", wanted, ["payload"])
        for batch in part.read()
        for payload in batch["payload"].to_pylist()
    ]


def offsets_of(room: Room, topic: str) -> list[int]:
    parts = log_tasks(room.data / "log", RowFilter((Exact(topic),)), ["offset"])
    return [number for part in parts for batch in part.read() for number in batch["offset"].to_pylist()]


def run_with(room: Room, *arguments: object) -> Finished:
    return polycast_here(*map(str, arguments), "--data", str(room.data))


def test_counts_match_a_real_broker(spark: SparkSession, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.add("a", "b.x", "nobody")
    exact = room.listen("hermod", "hermod.sub", Exact("a"))
    contains = room.listen("simplest", "simplest", Contains("b"))
    room.add(*["a", "b.x", "c.x"] * 10)
    prefix = room.listen("fanout", "fanout.client", Prefix("c."))
    everything = room.listen("nanomsg", "nanomsg.pub", Everything())
    room.add("a", "ab", "c.x")
    contains.publish([Message("b.own", b"1")])
    wait_for(lambda: offsets_of(room, "b.own"), "b.own in the log")
    exact.close()
    room.wait_for("disconnect")
    room.add("a")

    first = take(spark, room)
    assert first == {
        "a": (13, 13, 2, 1),
        "ab": (1, 2, 2, 0),
        "b.own": (1, 1, 1, 0),
        "b.x": (11, 10, 1, 1),
        "c.x": (11, 2, 2, 10),
        "nobody": (1, 0, 0, 1),
    }
    logged = published(room)
    assert {row["topic"]: row for row in logged}["a"] == {
        "topic": "a", "messages": 13, "deliveries": 13, "subscribers": 2, "undelivered": 1, "known_from": 0,
    }  # fmt: skip
    assert DELIVERIES.finish
    lines = DELIVERIES.finish(PipelineRun(spark, DELIVERIES, room.data, "", DELIVERIES.settings()))
    assert lines == ["6 topics, 1 without deliveries", "           1 messages  nobody"]

    assert take(spark, room) == first
    assert published(room) == logged
    repeat_last_batch(room)
    room.add("a")
    assert take(spark, room) == first | {"a": (14, 14, 2, 1)}
    assert len(published(room)) == len(logged) + 1
    late = connect("hermod", f"tcp://127.0.0.1:{room.broker.ports['hermod.sub']}")
    late.subscribe([Exact("ab")], StartPosition())
    room.wait_for("subscribe")
    check_commands(spark, room, monkeypatch)
    for client in (prefix, contains, everything, late):
        client.close()


def repeat_last_batch(room: Room) -> None:
    """Simulates a driver that was killed before Spark committed the batch."""
    commits = room.data / "checkpoints" / "deliveries" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def check_commands(spark: SparkSession, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(spark, monkeypatch)
    response = json.loads(run_with(room, "why", offsets_of(room, "ab")[0], "--json").out)
    assert Counter((row["dialect"], row["pattern"], row["how"]) for row in response["receivers"]) == {
        ("simplest", "~b", "live"): 1,
        ("nanomsg", ">", "live"): 1,
        ("hermod", "ab", "replay"): 1,
    }
    assert (response["topic"], response["note"], response["silent"], response["drops"]) == ("ab", "", [], [])
    shown = run_with(room, "why", offsets_of(room, "b.own")[0])
    assert "has no echo" in shown.out.decode()
    assert "no subscription matched" in run_with(room, "why", offsets_of(room, "nobody")[0]).out.decode()
    found = json.loads(run_with(room, "estimate", "~b", "--json").out)
    assert (found["messages"], found["topics"]) == (14, 4)
    assert found["bytes"] == 11 * 3 + 2 + 1 + 6
    assert found["top"][0] == {"topic": "b.x", "messages": 11, "bytes": 33}
    assert found["peak_messages_per_second"] > 0
    words = run_with(room, "estimate", "nothing", "--since", "-1h")
    assert (words.code, words.err) == (0, "")
    assert "0 messages, 0 bytes, 0 topics" in words.out.decode()
