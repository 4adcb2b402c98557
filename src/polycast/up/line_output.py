"""Output for a pipe: `PART LINE` on stdout; the log lines of the parts on stderr."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TextIO

from polycast.up.lifecycle import PartState
from polycast.up.parts import Part


class LineOutput:
    def broker_ready(self, console: str) -> None:
        if console:
            self._print(f"console {console}")

    def state_changed(self, part: Part) -> None:
        if part.lifecycle.state is not PartState.RUNNING:  # the part prints that line itself
            for line in to_lines(part, time.monotonic()):
                self._print(f"{part.name} {line}")

    def stdout_line(self, part: Part, line: str) -> None:
        self._print(f"{part.name} {line}")

    def stderr_line(self, part: Part, line: str) -> None:
        _write(sys.stderr, f"{part.name}: {line}")

    def _print(self, line: str) -> None:
        _write(sys.stdout, line)


def to_lines(part: Part, now: float) -> list[str]:
    """State and reason; a hint is a line of its own."""
    lifecycle = part.lifecycle
    text = str(lifecycle.state)
    if lifecycle.reason:
        text += f": {lifecycle.reason}"
    if lifecycle.state is PartState.RESTING:
        first, *more = text.splitlines()
        text = "\n".join([f"{first}; again in {max(0.0, lifecycle.due - now):.0f} s", *more])
    return text.splitlines()


def _write(stream: TextIO, line: str) -> None:
    """Ignores a closed stream."""
    with suppress(OSError, ValueError):
        stream.write(line + "\n")
        stream.flush()
