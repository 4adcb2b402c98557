"""What a pipeline writes is for those alone who may read the log: Spark's own files, and those of its workers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kit import hermod
from kit.broker import Broker, clean_environment
from kit.hermod import OK
from kit.program import POLYCAST

OTHERS = 0o077
SPARK_SECONDS = 240.0


def test_the_lake_and_checkpoints_are_for_the_owner_of_the_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = os.umask(0o022)
    try:
        with Broker(data=data, fresh=True) as broker, broker.connect("hermod.pub") as peer:
            peer.send(hermod.message("t", b"x"))
            peer.expect(OK)
            at = f"--at=tcp://127.0.0.1:{broker.ports['hermod.pub']}"
            command = [*POLYCAST, "pipeline", "run", "archive", "--once", f"--data={data}", at]
            done = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=SPARK_SECONDS)
            assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    found = {str(path.relative_to(data)): path.stat().st_mode for path in data.rglob("*")}
    assert "checkpoints/archive/offsets/0" in found and any(name.startswith("lake/date=") for name in found)
    assert {name: oct(mode) for name, mode in found.items() if mode & OTHERS} == {}
