"""One process of a part, from its start until nothing is left of it.

It has a process group of its own: what it started in turn, a Java for example, is ended with it. An interrupt from
the terminal does not reach it, so that parts stop in order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

OURS = "polycast: "
HINT = "hint: "
LINE_BYTES = 64 * 1024
DRAIN_SECONDS = 1.0
"""How long the last words of a process that has ended are waited for."""


class Child:
    """`hear` gets each line of its stdout, `read` each of its stderr but for its last words."""

    def __init__(self, hear: Callable[[str], None], read: Callable[[str], None]) -> None:
        self._hear = hear
        self._read = read
        self._process: asyncio.subprocess.Process | None = None
        self._unwanted = False
        self.last_words = ""
        """Why it ends, where it says so; with the cure, if it knows one."""

    async def run(
        self, module: str, arguments: Sequence[str], tie: signal.Signals, environment: Mapping[str, str]
    ) -> int:
        """Its exit code. `tie` is what it gets when this process here is gone."""
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "polycast.up.tied", str(os.getpid()), str(int(tie)), module, *arguments,
            stdin=nothing, stdout=pipe, stderr=pipe, start_new_session=True, limit=LINE_BYTES,
            env=environment,
        )  # fmt: skip
        if self._unwanted:
            self.kill()
        assert process.stdout and process.stderr
        reading = asyncio.gather(_follow(process.stdout, self._hear), _follow(process.stderr, self._note))
        code = await process.wait()
        self.kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(reading, DRAIN_SECONDS)
        return code

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ask_to_stop(self) -> None:
        self._unwanted = True
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """With all that it started."""
        self._unwanted = True
        if self._process:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _note(self, line: str) -> None:
        """An error of ours and its hint are kept for the end, which they explain."""
        if line.startswith(OURS):
            self.last_words = line.removeprefix(OURS)
        elif line.startswith(HINT) and self.last_words:
            self.last_words += f"\n{line}"
        else:
            self._read(line)


async def _follow(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # a line that is longer than anybody reads: asyncio has dropped it
            continue
        if not line:
            return
        take(line.decode(errors="replace").rstrip("\r\n"))


def to_reason(code: int, last_words: str) -> str:
    if last_words:
        return last_words
    if code >= 0:
        return f"ended with code {code}"
    return f"killed by signal {-code}"
