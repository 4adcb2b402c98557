"""Measurements with a broker: end-to-end latency of a stream, and throughput of the sink."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from polycast.bench.spark.rows import PAYLOAD_BYTES, TOPICS
from polycast.bench.target_process import running
from polycast.bench.targets import is_ready, polycast_command, read_listening, set_flags
from polycast.client import connect
from polycast.model import Exact, Message

LISTENERS = ("hermod.pub", "hermod.sub")
RATE = 10_000
BURST = 100
PUBLISHED, RECEIVED = "fresh.in", "fresh.out"


@contextmanager
def broker(folder: Path, settings: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Runs a broker with its log in `data`; yields the addresses of its listeners by name."""
    command = [*polycast_command(LISTENERS, folder / "data"), *set_flags(settings)]
    with running(command, folder, is_ready) as (output, _):
        yield {name: f"tcp://127.0.0.1:{port}" for name, port in read_listening(output).items()}


def sink_rate(spark: SparkSession, at: str, rows: int) -> float:
    """Rows per second, from the start of the job to its commit."""
    table = spark.range(0, rows, 1, 2).select(
        F.concat(F.lit("sink."), F.col("id") % TOPICS).alias("topic"),
        F.rpad(F.col("id").cast("string"), PAYLOAD_BYTES, ".").alias("payload"),
    )
    started = time.perf_counter()
    table.write.format("polycast").mode("append").option("at", at).save()
    return rows / (time.perf_counter() - started)


class Freshness:
    """Sends messages with their publishing time through a stream and receives them again."""

    def __init__(self, spark: SparkSession, data: Path, addresses: dict[str, str]) -> None:
        self._spark = spark
        self._data = data
        self._addresses = addresses
        self._ended = threading.Event()
        self.seconds: list[float] = []

    def measure(self, warm_seconds: float, seconds: float) -> tuple[float, float]:
        """Median and 99th percentile of the time from publish to the subscriber of the sink's topic."""
        query = self._start()
        threads = [threading.Thread(target=act, daemon=True) for act in (self._receive, self._publish)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(warm_seconds)
            self.seconds.clear()
            time.sleep(seconds)
            found = list(self.seconds)
        finally:
            self._ended.set()
            query.stop()
        return median(found), quantiles(found, n=100)[98]

    def _start(self) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("polycast")
            .option("path", str(self._data / "log"))
            .option("subscribe", PUBLISHED)
            .load()
        )
        writer = rows.select(F.lit(RECEIVED).alias("topic"), "payload").writeStream.format("polycast")
        writer = writer.option("at", self._addresses["hermod.pub"])
        return writer.option("checkpointLocation", str(self._data / "fresh")).start()

    def _publish(self) -> None:
        with connect("hermod", self._addresses["hermod.pub"], publishing=True, reconnect=False) as client:
            due = time.monotonic()
            while not self._ended.is_set():
                text = json.dumps(time.time()).encode().ljust(PAYLOAD_BYTES)
                client.publish([Message(PUBLISHED, text)] * BURST)
                due += BURST / RATE
                time.sleep(max(0.0, due - time.monotonic()))

    def _receive(self) -> None:
        with connect("hermod", self._addresses["hermod.sub"], reconnect=False) as client:
            client.subscribe([Exact(RECEIVED)])
            for messages in client.messages():
                now = time.time()
                self.seconds += [now - json.loads(message.payload) for message in messages]
                if self._ended.is_set():
                    return
