"""What happens, as lines for a pipe: `PART WORDS` on stdout, and on stderr what the parts log."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TextIO

from polycast.up.life import State
from polycast.up.parts import Part


class Lines:
    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr

    def opened(self, console: str) -> None:
        if console:
            self.say(f"console {console}")

    def changed(self, part: Part) -> None:
        if part.life.state is not State.RUNNING:  # that it says itself
            for line in to_lines(part, time.monotonic()):
                self.say(f"{part.name} {line}")

    def heard(self, part: Part, line: str) -> None:
        self.say(f"{part.name} {line}")

    def logged(self, part: Part, line: str) -> None:
        _write(self._err, f"{part.name}: {line}")

    def say(self, line: str) -> None:
        _write(self._out, line)


def to_lines(part: Part, now: float) -> list[str]:
    """Its state, with the reason; where there is a cure, on a line of its own."""
    life = part.life
    words = str(life.state)
    if life.reason:
        words += f": {life.reason}"
    if life.state is State.RESTING:
        first, *more = words.splitlines()
        words = "\n".join([f"{first}; again in {max(0.0, life.due - now):.0f} s", *more])
    return words.splitlines()


def _write(stream: TextIO, line: str) -> None:
    """Nobody need listen."""
    with suppress(OSError, ValueError):
        stream.write(line + "\n")
        stream.flush()
