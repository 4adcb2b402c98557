"""Runs a program for each request: the body goes to stdin, the response is stdout.

The body is never part of a command line. Limits apply to parallel runs, waiting requests, the output and the time
of a run. When a run ends, its whole process group is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from polycast.cli.request import parse_json
from polycast.dialects.client_requests import Response, to_failure
from polycast.model import Body, Format

WAITING_AT_MOST = 100
"""Requests that wait for a run; further ones fail at once."""
WAITING_BYTES = 64 * 1024 * 1024
OUTPUT_BYTES = 16 * 1024 * 1024
ERROR_BYTES = 64 * 1024
"""The part of stderr that is read, from its end."""
STDIN, STDOUT = 0, 1


class ProgramRunner:
    def __init__(self, command: Sequence[str], parallel: int, seconds: float) -> None:
        self._command = command
        self._free = asyncio.Semaphore(parallel)
        self._seconds = seconds
        self._waiting = self._waiting_bytes = 0

    async def run(self, body: Body) -> Response:
        """The response to a request with this body."""
        size = len(body.payload)
        if self._waiting >= WAITING_AT_MOST or self._waiting_bytes + size > WAITING_BYTES:
            return to_failure(f"Busy: {self._waiting:,} requests wait")
        self._waiting += 1
        self._waiting_bytes += size
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            return to_failure(f"Busy: other requests took {self._seconds:g} s")
        finally:
            self._waiting -= 1
            self._waiting_bytes -= size
        try:
            return await self._run(body.payload)
        finally:
            self._free.release()

    async def _run(self, payload: bytes) -> Response:
        try:
            transport, running = await self._start()
        except OSError as error:
            return to_failure(f"cannot run {self._command[0]}: {error.strerror}")
        try:
            stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(STDIN))
            stdin.write(payload)
            stdin.close()
            async with asyncio.timeout(self._seconds):
                await running.ended.wait()
            return running.to_response(transport.get_returncode())
        except TimeoutError:
            return to_failure(f"Timeout: it ran longer than {self._seconds:g} s")
        finally:
            await _stop(transport, running)

    async def _start(self) -> tuple[asyncio.SubprocessTransport, Run]:
        """Shielded from cancellation: asyncio would leave processes behind."""
        loop = asyncio.get_running_loop()
        starting = asyncio.ensure_future(loop.subprocess_exec(Run, *self._command, start_new_session=True))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await _stop(*await starting)
            raise


async def _stop(transport: asyncio.SubprocessTransport, running: Run) -> None:
    """Kills the rest of the process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    await running.exited.wait()
    transport.close()


class Run(asyncio.SubprocessProtocol):
    """Collects the output of one run."""

    def __init__(self) -> None:
        self._output = bytearray()
        self._errors = b""
        self.ended = asyncio.Event()
        """Set when the program has ended and closed its output, or has written too much."""
        self.exited = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != STDOUT:
            self._errors = (self._errors + data)[-ERROR_BYTES:]
        elif len(self._output) <= OUTPUT_BYTES:
            self._output += data
        else:
            self.ended.set()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def to_response(self, code: int | None) -> Response:
        if len(self._output) > OUTPUT_BYTES:
            return to_failure(f"TooLarge: the output is longer than {OUTPUT_BYTES:,} bytes")
        if code:
            lines = self._errors.decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            return to_failure(last or (f"exit code {code}" if code > 0 else f"ended by signal {-code}"))
        return Response(True, to_output_body(bytes(self._output)))


def to_output_body(output: bytes) -> Body:
    """JSON, or text without the last line break, or bytes; no output is no body."""
    if not output:
        return Body()
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return Body(output, Format.BYTES)
    try:
        return parse_json(text)
    except ValueError:
        return Body(text.removesuffix("\n").encode(), Format.TEXT)
