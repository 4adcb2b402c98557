"""A stream at a broker that restarts, and at one that has nothing for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual alias
from pyspark.sql.streaming.query import StreamingQuery

from kit.broker import Broker
from kit.links import free_port
from kit.replay import metrics, publish
from kit.wire import wait_for
from polycast.log.read.reader import Reader
from polycast.spark.stream import ADVANCE_SECONDS

SECONDS = 120.0


class Scene:
    """A broker on one port, and a stream that reads from it and publishes to it."""

    running: Broker

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.port = free_port()
        self.at = f"tcp://127.0.0.1:{self.port}"
        self.release = folder / "release"

    def broker(self) -> Broker:
        return Broker(f"--listen=hermod.pub={self.at}", listen=("http",), data=self.folder / "data", events=True)

    def publish(self, *payloads: bytes) -> None:
        with self.running.connect("hermod.pub") as peer:
            publish(peer, [("in", payload) for payload in payloads])

    @contextmanager
    def stream(self) -> Iterator[StreamingQuery]:
        held = F.udf(to_holder(str(self.release)), "binary", useArrow=False)
        rows = self.spark.readStream.format("polycast").option("at", self.at).option("subscribe", "in")
        rows = rows.option("minPartitions", 2).option("startingOffsets", "earliest")
        messages = rows.load().select(F.lit("out").alias("topic"), held("payload").alias("payload"))
        writer = messages.writeStream.format("polycast").option("at", self.at)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        try:
            yield query
        finally:
            query.stop()

    def carried(self) -> list[bytes]:
        reader = Reader(self.folder / "data" / "log", 0, ["offset", "topic", "payload"])
        found: list[bytes] = []
        try:
            while (batch := reader.read()) is not None:
                rows = zip(batch["topic"].to_pylist(), batch["payload"].to_pylist(), strict=True)
                found += [payload for topic, payload in rows if topic == "out"]
        finally:
            reader.close()
        return sorted(found)

    def wait_for_carried(self, *payloads: bytes) -> None:
        wait_for(lambda: len(self.carried()) >= len(payloads), f"{payloads}", SECONDS)
        assert self.carried() == sorted(payloads)

    def stages(self) -> list[Path]:
        return list((self.folder / "data" / "stages").glob("*.stage"))


def to_holder(release: str) -> Callable[[bytes], bytes]:
    """The task with the payload `held` waits for a file. Workers do not have this module."""

    def hold(payload: bytes) -> bytes:
        import os
        import time

        while payload == b"held" and not os.path.exists(release):  # noqa: PTH110
            time.sleep(0.05)
        return bytes(payload)

    return hold


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)


def test_a_stream_survives_restarts_of_its_broker(scene: Scene) -> None:
    """A kill between a stage and its commit, then a clean restart."""
    with scene.broker() as scene.running:
        scene.publish(b"a", b"held")
        with scene.stream() as query:
            wait_for(scene.stages, "a stage", SECONDS)
            scene.running.kill()
            with scene.broker() as scene.running:
                assert "1 rows in 1 stages of an earlier run" in scene.running.log()
                scene.release.touch()
                scene.wait_for_carried(b"a", b"held")
                scene.publish(b"b")
                scene.wait_for_carried(b"a", b"b", b"held")
            with scene.broker() as scene.running:
                scene.publish(b"c")
                scene.wait_for_carried(b"a", b"b", b"c", b"held")
                assert query.isActive
                wait_for(lambda: not scene.stages(), "the stages to go")


def test_an_idle_stream_runs_no_batch(scene: Scene) -> None:
    """Connections of others, which are events in the log, are no reason for one."""
    with scene.broker() as scene.running, scene.stream() as query:
        scene.publish(b"a")
        scene.wait_for_carried(b"a")
        wait_for(lambda: query.status["message"] == "Waiting for data to arrive", "the end of the batch", SECONDS)
        began = time.monotonic()
        for _ in range(5):
            scene.running.connect("hermod.pub").close()
            wait_for_polls(scene.running)
        advances = 1 + (time.monotonic() - began) // ADVANCE_SECONDS  # on a busy machine
        assert len(list((scene.folder / "checkpoint" / "commits").glob("[0-9]*"))) <= 1 + advances
        connections = metrics(scene.running)["polycast_connections_open"]
        assert sum(count for labels, count in connections.items() if ("listener", "hermod.pub") in labels) == 1


def wait_for_polls(broker: Broker) -> None:
    before = bytes_in(broker)
    wait_for(lambda: bytes_in(broker) > before + 500, "some polls", SECONDS)


def bytes_in(broker: Broker) -> float:
    found = metrics(broker)["polycast_bytes_in_total"]
    return float(sum(count for labels, count in found.items() if ("listener", "hermod.pub") in labels))
