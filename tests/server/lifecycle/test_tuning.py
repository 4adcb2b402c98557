"""The settings of the interpreter that a broker process runs with."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
from polycast.server.tuning import SWITCH_SECONDS, exclude_from_collections, tune_process

tune_process()
exclude_from_collections()
print(round(sys.getswitchinterval(), 6) == SWITCH_SECONDS)
print(gc.get_freeze_count() > 1000, len(bytes(8 * 1024 * 1024)))
before = gc.get_stats()[2]["collections"]
kept = [[] for _ in range(1_000_000)]
print(gc.get_stats()[2]["collections"] - before)
"""


def test_a_process_is_tuned() -> None:
    """A million objects that stay, as those of the log's recent messages, cause no full collection."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", str(8 * 1024 * 1024), "0"]
