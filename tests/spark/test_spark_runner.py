"""A pipeline as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from kit.broker import clean_environment
from kit.program import POLYCAST, polycast
from log.shelf import Shelf

SPARK_SECONDS = 240.0
"""Spark takes its time to begin, more so when others are busy as well."""


def test_a_run_until_it_is_told_to_stop(shelf: Shelf) -> None:
    data = shelf.folder.parent
    command = [*POLYCAST, "pipeline", "run", "archive", "--data", str(data), "--set=trigger_seconds=0"]
    place = ["--master", "local[1]", "--at", "tcp://127.0.0.1:1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, *place], stdout=pipe, stderr=pipe, text=True, env=clean_environment()
    ) as running:
        try:
            assert running.stdout
            first = json.loads(running.stdout.readline())
            assert (first["pipeline"], first["batch"], first["rows"]) == ("archive", 0, 300)
            assert (first["offset"], first["lag"]) == (300, 0)
            second = polycast(*command[len(POLYCAST) :])
            assert (second.code, second.out) == (1, b"")
            assert f"archive is already running in {data}, as process {running.pid}" in second.err
            running.send_signal(signal.SIGTERM)
            out, err = running.communicate(timeout=SPARK_SECONDS)
        finally:
            if running.poll() is None:
                os.kill(running.pid, signal.SIGKILL)
    assert (running.returncode, err) == (0, "")
    last = json.loads(out.splitlines()[-1])
    assert (last["done"], last["batches"], last["rows"], last["offset"]) == (True, 1, 300, 300)
    assert list((data / "lake").glob("*/*/*.parquet"))
