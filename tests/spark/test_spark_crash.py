"""Spark's driver, its workers and the broker are killed while messages are carried.

Afterwards everything that the log has under the publishers' topics is there once more under `out/`, and all of it
in the lake: the same payloads, as often, whatever was killed when. Nothing that was acknowledged is missing.
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

from crash.mortal import ENVIRONMENT, Mortal
from crash.publishers import OnceBatches, Unit
from kit.links import free_port
from kit.wire import wait_for
from polycast.log.read.reader import Reader

ROUNDS = int(os.environ.get("POLYCAST_CRASH_SPARK", "22"))
SEED = os.environ.get("POLYCAST_CRASH_SEED") or str(random.randrange(10**9))
DRIVERS = 10
"""In so many rounds the driver dies once: it takes its time to come back."""
WAIT_SECONDS = 180.0


class Steady(OnceBatches):
    """Leaves the machine some room."""

    ahead = 1

    def make_unit(self) -> Unit:
        self.ending.wait(0.25)
        return super().make_unit()


class Carrier:
    """The driver, in a process of its own."""

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
        """The Python process alone; its Java notices."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[int]:
        """The processes in which Spark's tasks run Python."""
        return [pid for pid in _members(self.process.pid) if b"pyspark.daemon" in _command_of(pid)]

    def wait_for_batches(self, count: int = 1) -> None:
        """Of the one that publishes, from now on."""
        before = Counter(self.batches)
        try:
            wait_for(lambda: self.batches["echo"] >= before["echo"] + count, "batches", WAIT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{self.lines[-5:]}, {self._stderr.read_text()[-2000:]}") from error


def _members(session: int) -> list[int]:
    """Spark's workers have a process group of their own."""
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
        self.broker = Mortal(folder / "data", folder / "broker.err")
        self.carrier = Carrier(folder, f"tcp://127.0.0.1:{self.port}")
        self.publishers = [Steady(f"steady-{number}", self.broker, Random(f"{seed}{number}")) for number in (1, 2)]
        self.kills: Counter[str] = Counter()

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
        """At some moment within a batch."""
        victim = "driver" if number % DRIVERS == DRIVERS - 1 else self.random.choice(("worker", "broker"))
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

    # -- what is there in the end ------------------------------------------------------------------------

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
        said = {name: count for name, count in found.items() if not name[0].startswith("out/")}
        carried = sum(found.values()) - sum(said.values())
        threading.Event().wait(2)  # others need the machine more
        return carried >= sum(said.values()) and self.lake().num_rows >= sum(found.values())


def digests(table: pa.Table) -> Counter[tuple[str, str]]:
    rows = zip(table["topic"].to_pylist(), table["payload"].to_pylist(), strict=True)
    return Counter((topic, xxhash.xxh3_64_hexdigest(payload)) for topic, payload in rows)


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SEED)
    print(f"POLYCAST_CRASH_SEED={SEED}, {ROUNDS} rounds")  # noqa: T201
    scene.play(ROUNDS)
    found = digests(scene.log())
    said = Counter({name: count for name, count in found.items() if not name[0].startswith("out/")})
    carried = Counter({(topic.removeprefix("out/"), digest): n for (topic, digest), n in (found - said).items()})
    assert carried == said
    assert digests(scene.lake()) == found
    for publisher in scene.publishers:
        assert not publisher.wrong
        sent = Counter((topic, xxhash.xxh3_64_hexdigest(payload)) for topic, payload in publisher.sent)
        assert not sent - said, f"{(sent - said).total()} messages of {publisher.name} are lost"
    assert said.total() == sum(len(publisher.sent) for publisher in scene.publishers)
    print(f"{dict(scene.kills)} kills, {said.total():,} messages carried once")  # noqa: T201
