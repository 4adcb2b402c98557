"""Runs the driver as a process of its own: a job in, an outcome out."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from polycast.bench.job import Job, Outcome

DRIVER = [sys.executable, "-m", "polycast.bench.driver"]
LIMIT_SECONDS = 120.0
ERROR_END_LIMIT = 500


def run_driver(job: Job) -> Outcome:
    limit = LIMIT_SECONDS + 2 * job.seconds
    try:
        given = msgspec.json.encode(job)
        done = subprocess.run(DRIVER, input=given, capture_output=True, timeout=limit, check=True)
    except subprocess.TimeoutExpired:
        return Outcome(error=f"the driver did not finish within {limit:g} s")
    except subprocess.CalledProcessError as error:
        error_end = error.stderr.decode(errors="replace").strip()[-ERROR_END_LIMIT:]
        return Outcome(error=f"the driver failed: {error_end}")
    return msgspec.json.decode(done.stdout, type=Outcome)
