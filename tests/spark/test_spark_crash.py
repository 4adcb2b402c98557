"""Kills Spark's driver, its workers and the broker while a stream copies messages.

Afterwards every message of the publishers' topics exists exactly once more under `out/`, and every message of the
log exactly once in the lake. No acknowledged message is missing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
import xxhash

from crash.publishers import IdempotentBatches, Unit
from crash.restartable import ENVIRONMENT, RestartableBroker
from kit.links import free_port
from kit.wire import wait_for
from polycast.log.read.reader import Reader

ROUNDS = int(os.environ.get("POLYCAST_CRASH_SPARK", "3"))
SEED = os.environ.get("POLYCAST_CRASH_SEED") or str(random.randrange(10**9))
VICTIMS = ("worker", "broker", "driver")
SHORT_ROUNDS = len(VICTIMS)
"""The first rounds kill each kind of process once, in random order."""
DRIVER_ROUNDS = 10
"""Later rounds kill the driver once in so many: its restart is slow."""
WAIT_SECONDS = 180.0


class Steady(IdempotentBatches):
    """Publishes slowly, so that Spark keeps up."""

    ahead = 1

    def make_unit(self) -> Unit:
        self.ending.wait(0.25)
        return super().make_unit()


class Carrier:
    """The driver process."""

    def __init__(self, folder: Path, at: str) -> None:
        self._command = [sys.executable, "-m", "spark.carrier", str(folder), at]
        self._stderr = folder / "carrier.err"
        self.lines: list[str] = []
        self.batches: Counter[str] = Counter()

    def start(self) -> None:
        with self._stderr.open("a") as stderr:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=ENVIRONMENT,
                start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        with process.stdout as lines:
            for line in lines:
                self.lines.append(line)
                words = line.split()
                if words[0] == "batch":
                    self.batches[words[1]] += 1

    def kill(self) -> None:
        """Kills the Python process; its Java process exits by itself."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[int]:
        """The Python worker processes of Spark's tasks."""
        return [pid for pid in _members(self.process.pid) if b"pyspark.daemon" in _command_of(pid)]

    def wait_for_batches(self, count: int = 1) -> None:
        """Waits for new batches of the publishing query."""
        before = Counter(self.batches)
        try:
            wait_for(lambda: self.batches["echo"] >= before["echo"] + count, "batches", WAIT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{self.lines[-5:]}, {self._stderr.read_text()[-2000:]}") from error


def _members(session: int) -> list[int]:
    """Processes of a session. Spark's workers have their own process groups."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found.append(int(path.name))
    return found


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Scene:
    def __init__(self, folder: Path, seed: str) -> None:
        self.random = Random(seed)
        self.port = free_port()
        self.folder = folder
        self.broker = RestartableBroker(folder / "data", folder / "broker.err")
        self.carrier = Carrier(folder, f"tcp://127.0.0.1:{self.port}")
        self.publishers = [Steady(f"steady-{number}", self.broker, Random(f"{seed}{number}")) for number in (1, 2)]
        self.kills: Counter[str] = Counter()
        self.first = self.random.sample(VICTIMS, SHORT_ROUNDS)

    def start_broker(self) -> None:
        small = ("--set=log.segment_bytes=2000000", "--set=events.enabled=false")
        self.broker.start(f"--listen=hermod.pub=tcp://127.0.0.1:{self.port}", *small)
        self.broker.wait_until_ready()

    def play(self, rounds: int) -> None:
        self.start_broker()
        for publisher in self.publishers:
            publisher.start()
        self.carrier.start()
        try:
            self.carrier.wait_for_batches()
            for number in range(rounds):
                self.strike(number)
                self.carrier.wait_for_batches()
            for publisher in self.publishers:
                publisher.ending.set()
                publisher.join(WAIT_SECONDS)
            wait_for(self.is_done, "everything to be carried", WAIT_SECONDS)
            self.broker.stop()
        finally:
            self.carrier.end()
            self.broker.end()

    def strike(self, number: int) -> None:
        """Kills a process at a random moment of a batch."""
        victim = self.first[number] if number < SHORT_ROUNDS else self.choose(number)
        threading.Event().wait(self.random.uniform(0, 0.4))
        self.kills[victim] += 1
        print(f"round {number}: the {victim}", flush=True)  # noqa: T201
        if victim == "driver":
            self.carrier.kill()
            self.carrier.start()
        elif victim == "broker":
            self.broker.kill()
            self.start_broker()
        else:
            workers = wait_for(self.carrier.workers, "a worker", WAIT_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(workers), signal.SIGKILL)

    def choose(self, number: int) -> str:
        is_driver = number % DRIVER_ROUNDS == DRIVER_ROUNDS - 1
        return "driver" if is_driver else self.random.choice(("worker", "broker"))

    # -- results -----------------------------------------------------------------------------------------

    def log(self) -> pa.Table:
        reader = Reader(self.folder / "data" / "log", 0, ["offset", "topic", "payload"])
        batches = []
        try:
            while (batch := reader.read()) is not None:
                batches.append(batch)
        finally:
            reader.close()
        return pa.Table.from_batches(batches)

    def lake(self) -> pa.Table:
        files = sorted(map(str, (self.folder / "data" / "lake").glob("*/*/*.parquet")))
        return pads.dataset(files, format="parquet").to_table(["offset", "topic", "payload"])

    def is_done(self) -> bool:
        found = digests(self.log())
        published = {name: count for name, count in found.items() if not name[0].startswith("out/")}
        carried = sum(found.values()) - sum(published.values())
        threading.Event().wait(2)  # leaves the CPU to Spark
        return carried >= sum(published.values()) and self.lake().num_rows >= sum(found.values())


def digests(table: pa.Table) -> Counter[tuple[str, str]]:
    rows = zip(table["topic"].to_pylist(), table["payload"].to_pylist(), strict=True)
    return Counter((topic, xxhash.xxh3_64_hexdigest(payload)) for topic, payload in rows)


@pytest.mark.slow
def test_no_message_is_lost_or_duplicated(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SEED)
    print(f"POLYCAST_CRASH_SEED={SEED}, {ROUNDS} rounds")  # noqa: T201
    scene.play(ROUNDS)
    found = digests(scene.log())
    published = Counter({name: count for name, count in found.items() if not name[0].startswith("out/")})
    carried = Counter(
        {(topic.removeprefix("out/"), digest): n for (topic, digest), n in (found - published).items()}
    )
    assert carried == published
    assert digests(scene.lake()) == found
    for publisher in scene.publishers:
        assert not publisher.wrong
        sent = Counter((topic, xxhash.xxh3_64_hexdigest(payload)) for topic, payload in publisher.sent)
        assert not sent - published, f"{(sent - published).total()} messages of {publisher.name} are lost"
    assert published.total() == sum(len(publisher.sent) for publisher in scene.publishers)
    print(f"{dict(scene.kills)} kills, {published.total():,} messages carried once")  # noqa: T201
