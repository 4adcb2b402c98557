"""A pipeline in its own process: progress, the lock, file modes, SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from kit import hermod
from kit.broker import Broker, clean_environment
from kit.hermod import OK
from kit.program import POLYCAST, polycast

OTHERS = 0o077
SPARK_SECONDS = 240.0
"""Spark starts slowly on a busy machine."""


def test_a_run_until_sigterm(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = os.umask(0o022)
    try:
        with Broker(data=data, fresh=True) as broker, broker.connect("hermod.pub") as peer:
            for _ in range(3):
                peer.send(hermod.message("t", b"x"))
                peer.expect(OK)
            at = f"--at=tcp://127.0.0.1:{broker.ports['hermod.pub']}"
            arguments = ["pipeline", "run", "archive", f"--data={data}", at, "--set=trigger_seconds=0"]
            last = run_until_sigterm(arguments, data)
    finally:
        os.umask(before)
    assert (last["done"], last["batches"], last["rows"], last["lag"]) == (True, 1, 3, 0)
    check_modes(data)


def run_until_sigterm(arguments: list[str], data: Path) -> dict[str, object]:
    """The report of a run that is stopped after its first batch. A second run is rejected meanwhile."""
    command = [*POLYCAST, *arguments, "--master=local[1]"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=clean_environment()) as running:
        try:
            assert running.stdout
            first = json.loads(running.stdout.readline())
            assert (first["pipeline"], first["batch"], first["rows"], first["lag"]) == ("archive", 0, 3, 0)
            second = polycast(*arguments)
            assert (second.code, second.out) == (1, b"")
            assert f"archive is already running in {data}, as process {running.pid}" in second.err
            running.send_signal(signal.SIGTERM)
            out, err = running.communicate(timeout=SPARK_SECONDS)
        finally:
            if running.poll() is None:
                os.kill(running.pid, signal.SIGKILL)
    assert (running.returncode, err) == (0, "")
    report: dict[str, object] = json.loads(out.splitlines()[-1])
    return report


def check_modes(data: Path) -> None:
    """The lake and the checkpoints are readable by the owner of the log only, workers' files included."""
    found = {str(path.relative_to(data)): path.stat().st_mode for path in data.rglob("*")}
    assert "checkpoints/archive/offsets/0" in found and any(name.startswith("lake/date=") for name in found)
    assert {name: oct(mode) for name, mode in found.items() if mode & OTHERS} == {}
