"""Commands that need Spark, where it is not installed: one line, and the cure."""

from __future__ import annotations

import json
import subprocess
import sys

from kit.broker import clean_environment
from polycast.pipelines import NAMES

WITHOUT = """
import contextlib, io, json, sys
sys.modules["pyspark"] = None  # as if it were not there, also for find_spec
from polycast.cli import main
for command in json.load(sys.stdin):
    sys.argv, err, code = ["polycast", *command], io.StringIO(), 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, err.getvalue()]))
"""
COMMANDS = [
    ["sql", "SELECT 1"],
    ["sql", "SELECT 1", "--into", "out"],
    ["why", "5"],
    ["estimate", "a"],
    ["find", "x"],
    *(["pipeline", "run", name] for name in NAMES),
    *(["pipeline", "describe", name] for name in NAMES),
    ["pipeline", "list"],
]
MISSING = "pyspark is not installed\nhint: pip install 'polycast[spark]'\n"


def test_commands_without_pyspark() -> None:
    command = [sys.executable, "-c", WITHOUT]
    sent = json.dumps(COMMANDS)
    ended = subprocess.run(
        command, input=sent, capture_output=True, text=True, check=True, env=clean_environment()
    )
    for command, line in zip(COMMANDS, ended.stdout.splitlines(), strict=True):
        code, words = json.loads(line)
        needed = command[:2] not in (["pipeline", "describe"], ["pipeline", "list"])
        missing = code == 1 and words.startswith("polycast: ") and words.endswith(MISSING)
        assert missing or (not needed and (code, words) == (0, "")), (command, words)
