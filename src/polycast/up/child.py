"""One process of a part.

The process leads its own process group, so that its children (Java, for example) end with it. An interrupt from
the terminal does not reach it: the supervisor stops the parts in order.
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
"""How long to read the remaining output of a process that has exited."""


class Child:
    """`on_stdout` receives each line of stdout, `on_stderr` each line of stderr except the final error."""

    def __init__(self, on_stdout: Callable[[str], None], on_stderr: Callable[[str], None]) -> None:
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self.error_text = ""
        """The error that the process printed last, with its hint."""

    async def run(
        self,
        module: str,
        arguments: Sequence[str],
        parent_death_signal: signal.Signals,
        environment: Mapping[str, str],
    ) -> int:
        """Returns the exit code. The kernel sends `parent_death_signal` when the supervisor ends."""
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "polycast.up.parent_death", str(os.getpid()), str(int(parent_death_signal)),
            module, *arguments, stdin=nothing, stdout=pipe, stderr=pipe, start_new_session=True,
            limit=LINE_BYTES, env=environment,
        )  # fmt: skip
        if self._stopping:
            self.kill()
        assert process.stdout and process.stderr
        reading = asyncio.gather(
            _read_lines(process.stdout, self._on_stdout), _read_lines(process.stderr, self._note)
        )
        code = await process.wait()
        self.kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(reading, DRAIN_SECONDS)
        return code

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def terminate(self) -> None:
        self._stopping = True
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        self._stopping = True
        if self._process:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _note(self, line: str) -> None:
        """The final error and its hint become `error_text`: the reason of the exit."""
        if line.startswith(OURS):
            self.error_text = line.removeprefix(OURS)
        elif line.startswith(HINT) and self.error_text:
            self.error_text += f"\n{line}"
        else:
            self._on_stderr(line)


async def _read_lines(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # a line longer than LINE_BYTES: asyncio has dropped it
            continue
        if not line:
            return
        take(line.decode(errors="replace").rstrip("\r\n"))


def to_reason(code: int, error_text: str) -> str:
    if error_text:
        return error_text
    if code >= 0:
        return f"ended with code {code}"
    return f"killed by signal {-code}"
