"""Spark's own cluster reads from and writes to three nodes, one of which dies. Every row comes out once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cluster.trio import Trio
from crash.restartable import ENVIRONMENT
from kit.links import free_port
from kit.replay import numbered, publish
from kit.wire import wait_for
from polycast.spark.java import find_java
from polycast.spark.schema import ROWS
from polycast.spark.source import PolycastSource

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Starts fast: all these processes share few cores."""
COUNT = 8000
SECONDS = 300.0
PROGRAM = [str(Path(sys.executable).with_name("spark-class"))]
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
LIMITS = ["--cores", "1", "--memory", "512m", "--webui-port", "0", "--host", "127.0.0.1"]


@contextmanager
def process(folder: Path, name: str, *command: str) -> Iterator[Path]:
    """Yields the file with its output."""
    output = folder / f"{name}.txt"
    environment = ENVIRONMENT | {
        "JAVA_HOME": str(find_java()), "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / name),
        "SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_SUBMIT_OPTS": JAVA,
    }  # fmt: skip
    with output.open("wb") as file:
        running = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    try:
        yield output
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def start_spark(stack: ExitStack, folder: Path) -> str:
    """A master and two workers of one core each. Returns the master's address."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    stack.enter_context(process(folder, "master", *PROGRAM, MASTER, *place))
    for name in ("worker-1", "worker-2"):
        stack.enter_context(process(folder, name, *PROGRAM, WORKER, *LIMITS, master))
    return master


def has_batches(output: Path, count: int) -> bool:
    found = output.read_text()
    assert "Traceback" not in found, found[-3000:]
    numbers = [int(line.split()[1]) for line in found.splitlines() if line.startswith("batch ")]
    return max(numbers, default=-1) + 1 >= count


def read_payloads(at: str, topic: str) -> Counter[int]:
    reader: Any = PolycastSource({"at": at, "subscribe": topic}).reader(ROWS)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return Counter(int(payload) for batch in batches for payload in batch["payload"].to_pylist())


def test_a_node_dies_and_every_row_comes_out_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        trio = stack.enter_context(Trio(tmp_path))
        ports = [node.ports["hermod.pub"] for node in trio.nodes.values()]
        at = ",".join(f"tcp://127.0.0.1:{port}" for port in ports)
        with trio.nodes["a"].connect("hermod.pub") as peer:
            publish(peer, numbered("in", range(COUNT)))
        master = start_spark(stack, tmp_path)
        command = [sys.executable, "-m", "spark.cluster_echo", master, str(tmp_path / "checkpoint"), at]
        output = stack.enter_context(process(tmp_path, "driver", *command))
        wait_for(lambda: has_batches(output, 1), "a batch", SECONDS)
        trio.kill("a")
        with trio.nodes["b"].connect("hermod.pub") as peer:
            publish(peer, numbered("in", range(COUNT, 2 * COUNT)))
        others = at.partition(",")[2]
        wait_for(lambda: read_payloads(others, "out").total() >= 2 * COUNT, "all rows", SECONDS)
        trio.catch_up()
        assert read_payloads(others, "out") == Counter(range(2 * COUNT))
        wait_for(lambda: has_batches(output, 3), "the number of the last batch", SECONDS)
