"""A stream of Spark that writes to the cluster through the sink, in a process of its own.

The source counts from 0. The stream starts again from its checkpoint when it fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from crash.restartable import ENVIRONMENT
from kit.wire import GUARD_SECONDS, wait_for

SPARK_TOPIC = "spark"
ROWS_PER_SECOND = 20
START_SECONDS = 180.0
COMMITTED, FAILED = "committed", "failed"


class SparkWriter:
    """`committed` rows are reported by Spark after the commit of their batch."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        folder.mkdir()
        self._stderr = folder / "stderr.txt"
        self._command = [sys.executable, "-m", "chaos.spark_writer", str(folder), ",".join(addresses)]
        self.committed = self.batches = self.failures = 0

    def start(self) -> None:
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=ENVIRONMENT,
                start_new_session=True,
            )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        wait_for(lambda: self.batches or not self._reading.is_alive(), "the first batch of Spark", START_SECONDS)
        assert self.batches, self._stderr.read_text()[-3000:]

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            word, _, number = line.partition(" ")
            if word == COMMITTED:
                self.committed += int(number)
                self.batches += 1
            elif word == FAILED:
                self.failures += 1

    def wait_for_batches(self, more: int, seconds: float) -> None:
        wanted = self.batches + more
        wait_for(lambda: self.batches >= wanted, f"{more} batches of Spark", seconds)

    def end(self) -> None:
        """Kills Spark: a commit on its way comes into the log, or does not."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(GUARD_SECONDS)
        self._reading.join(GUARD_SECONDS)
        assert self._process.stdout
        self._process.stdout.close()


def main(folder: Path, at: str) -> None:
    from polycast.spark import session

    spark = session("local[1]")
    rows = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
    messages = rows.selectExpr("cast(value as string) as payload")
    writer = messages.writeStream.format("polycast").option("at", at).option("topic", SPARK_TOPIC)
    writer = writer.option("retrySeconds", "120").option("checkpointLocation", str(folder / "checkpoint"))
    while True:
        query = writer.trigger(processingTime="1 second").start()
        reported = -1
        while query.isActive:
            query.awaitTermination(1)
            for progress in query.recentProgress:
                if progress["batchId"] > reported and progress["numInputRows"]:
                    print(COMMITTED, progress["numInputRows"], flush=True)  # noqa: T201
                reported = max(reported, progress["batchId"])
        print(FAILED, str(query.exception())[:200].replace("\n", " "), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
