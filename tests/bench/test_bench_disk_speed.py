"""What the disk takes, and the counters of a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from polycast.bench.acked_publishing import fence
from polycast.bench.cells import Cell
from polycast.bench.disk_speed import BLOCK_BYTES, measure_disk, measure_fdatasync
from polycast.bench.job import Job
from polycast.bench.log_counters import LogCounters, read_log_counters
from polycast.bench.targets import polycast_target

JOB = Job("disk", 0, 0, Cell("x", "x", rate=1000), seconds=0.02)


def test_blocks_per_second(tmp_path: Path) -> None:
    outcome = measure_disk(replace(JOB, folder=str(tmp_path)))
    assert outcome.log_bytes == outcome.published * BLOCK_BYTES > 0
    assert outcome.log_rate == outcome.log_bytes / outcome.elapsed
    assert not list(tmp_path.iterdir())


def test_one_fdatasync_per_append(tmp_path: Path) -> None:
    outcome = measure_fdatasync(replace(JOB, folder=str(tmp_path)))
    assert outcome.published == 20
    assert outcome.delays
    assert 0 < outcome.delays.p50 <= outcome.delays.p999
    assert not list(tmp_path.iterdir())


def test_counters_of_a_target_without_a_log() -> None:
    assert read_log_counters(None) == LogCounters(0, 0)
    assert LogCounters(500, 7).since(LogCounters(100, 5)) == LogCounters(400, 2)


@pytest.mark.slow
def test_counters_of_a_broker(tmp_path: Path) -> None:
    with polycast_target("simplest", with_log=True, scratch=tmp_path).start() as ports:
        assert ports.fence
        fence(ports.fence)  # the broker's own events gather before they are written
        assert read_log_counters(ports.metrics).written_bytes > 0
