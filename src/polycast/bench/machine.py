"""The machine of a benchmark run."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from time import perf_counter

CPU_FILE = Path("/proc/cpuinfo")
FSYNC_TRIES = 20
FSYNC_BYTES = 4096


@dataclass(frozen=True)
class Machine:
    cpu: str
    cores: int
    memory_bytes: int
    system: str
    kernel: str
    python: str
    date: str


def fsync_seconds(folder: Path) -> float:
    """Median time to write and fsync a few bytes: the lower bound of every acknowledgement."""
    took = []
    with TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(FSYNC_TRIES):
            start = perf_counter()
            file.write(bytes(FSYNC_BYTES))
            os.fsync(file.fileno())
            took.append(perf_counter() - start)
    return median(took)


def describe_machine() -> Machine:
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.machine()}",
        kernel=platform.release(),
        python=platform.python_version(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _cpu_model() -> str:
    """From /proc/cpuinfo on Linux, otherwise from Python."""
    if CPU_FILE.exists():
        for line in CPU_FILE.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
