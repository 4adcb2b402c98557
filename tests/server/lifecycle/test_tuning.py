"""The settings of the interpreter that a broker process runs with."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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


BLOCKS = """
import resource, threading
from polycast.server.tuning import tune_process

MIB = 1024 * 1024
TURNS, BLOCKS_PER_TURN = 50, 8

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def allocate_and_free():
    kept = [bytes(MIB) for _ in range(58)]  # the blocks do not fit into what is left of the thread's first 64 MiB
    before = faults()
    for _ in range(TURNS):
        [b"x" * MIB for _ in range(BLOCKS_PER_TURN)]
    print((faults() - before) * resource.getpagesize() // MIB)

tune_process()
thread = threading.Thread(target=allocate_and_free)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is tuned for glibc")
def test_freed_memory_of_a_thread_is_used_again() -> None:
    """Eight blocks of 1 MiB, fifty times: the kernel provides their pages once, not in every turn."""
    done = subprocess.run([sys.executable, "-c", BLOCKS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * 8
