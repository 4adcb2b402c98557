"""The CPU time of this process, and of others."""

from __future__ import annotations

import os
import subprocess
import sys
from time import process_time

import pytest

from polycast.bench.cpu_time import CLOCK_OF_PROCESS, measure_cpu_time


def test_the_driver_is_this_process() -> None:
    before = measure_cpu_time([])
    while process_time() < before.driver + 0.05:
        pass
    used = measure_cpu_time([]).since(before)
    assert used.driver >= 0.05
    assert used.target == 0


@pytest.mark.skipif(CLOCK_OF_PROCESS is None, reason="this system has no clock_getcpuclockid")
def test_the_target_is_the_sum_of_its_processes() -> None:
    """This process stands for both of them."""
    before = process_time()
    found = measure_cpu_time([os.getpid()] * 2).target / 2
    assert before <= found <= process_time()


def test_a_process_that_has_ended_counts_as_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert measure_cpu_time([ended.pid]).target == 0
