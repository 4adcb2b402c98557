"""The measured broker: one process without a log, and its resident memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from polycast.bench.target_process import running, temporary_folder
from polycast.bench.targets import is_ready, polycast_command, read_listening, set_flags

KIB = 1024


@dataclass(frozen=True)
class BrokerProcess:
    process: int
    ports: dict[str, int]
    """By listener."""

    def memory(self) -> int:
        """Resident bytes."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """The highest number of resident bytes so far."""
        return self._status("VmHWM")

    def _status(self, key: str) -> int:
        """0: unknown."""
        status = Path(f"/proc/{self.process}/status")
        found = re.search(rf"^{key}:\s*(\d+) kB", status.read_text(), re.MULTILINE) if status.exists() else None
        return int(found[1]) * KIB if found else 0


@contextmanager
def run_broker(listeners: Sequence[str], settings: Sequence[str] = ()) -> Iterator[BrokerProcess]:
    """`settings`: as for `--set`."""
    command = [*polycast_command(listeners, None), *set_flags(settings)]
    with temporary_folder() as folder, running(command, folder, is_ready) as (output, process):
        yield BrokerProcess(process, read_listening(output))
