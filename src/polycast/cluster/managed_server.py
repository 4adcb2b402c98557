"""The nats-server of a node with `cluster.manage`: a child process of the broker.

Its folder is DIR/nats. A server that ended is restarted, with growing pauses. The server is stopped after the
node. On Linux the kernel ends the server if the broker is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path
from types import TracebackType

from polycast.cluster.nats_server import (
    ServerPlan,
    ServerTls,
    StoreLock,
    find_program,
    read_password,
    responds,
    write_configuration,
)
from polycast.cluster.tasks import end_tasks
from polycast.errors import StartError
from polycast.server.settings import Settings

log = logging.getLogger("polycast.cluster")

START_SECONDS = 20.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
FIRST_PAUSE_SECONDS = 0.25
LAST_PAUSE_SECONDS = 15.0
STABLE_SECONDS = 60.0
"""After a run of this length, the pauses start again from the shortest."""
LAST_LINES_BYTES = 400

BOUND_TO_PARENT = """\
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Sets PR_SET_PDEATHSIG to SIGTERM. This needs a program of its own: the broker has threads, so no Python may run
after its fork."""


def to_plan(settings: Settings) -> ServerPlan:
    wanted, tls = settings.cluster, settings.tls
    secure = ServerTls(tls.certificate, tls.key or tls.certificate, tls.ca) if wanted.tls else None
    folder = str(Path(settings.log.data) / "nats")
    return ServerPlan(wanted.node, folder, wanted.listen, wanted.route, list(wanted.routes), secure, wanted.name)


def password_file(settings: Settings) -> Path:
    return Path(settings.cluster.credentials or Path(settings.log.data) / "nats" / "password")


class ManagedServer:
    """`async with ManagedServer(settings):` runs while the server responds, and restarts a server that ended."""

    def __init__(self, settings: Settings) -> None:
        self._plan = to_plan(settings)
        self._password_file = password_file(settings)
        self._lock: StoreLock
        self._process: asyncio.subprocess.Process
        self._watching: asyncio.Task[None]
        self.restarts = 0

    async def __aenter__(self) -> ManagedServer:
        self._lock = await asyncio.to_thread(StoreLock, Path(self._plan.folder))
        try:
            await self._start_first()
        except BaseException:
            self._lock.release()
            raise
        self._watching = asyncio.create_task(self._watch())
        return self

    async def _start_first(self) -> None:
        """Returns when the server responds."""
        self._file = write_configuration(self._plan, read_password(self._password_file))
        deadline = time.monotonic() + START_SECONDS
        await self._start()
        while not await self._is_up():
            if time.monotonic() > deadline:
                await self._stop()
                text = f"nats-server does not respond at {self._plan.listen}: {self._last_lines()}"
                raise StartError(text, f"{self._plan.log_file} has the details")
            await asyncio.sleep(POLL_SECONDS)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_tasks([self._watching])
        await self._stop()
        self._lock.release()

    async def _start(self) -> None:
        with self._plan.log_file.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-c", BOUND_TO_PARENT, str(os.getpid()), find_program(), "-c",
                str(self._file), stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                pass_fds=[self._lock.descriptor],
                start_new_session=True,  # ctrl-C must reach only the broker, which stops its server last
            )  # fmt: skip

    async def _is_up(self) -> bool:
        """Restarts a server that ended: after a kill of the broker, its old server may still hold the port."""
        if self._process.returncode is not None:
            await asyncio.sleep(FIRST_PAUSE_SECONDS)
            await self._start()
            return False
        return await asyncio.to_thread(responds, self._plan.listen) and self._process.returncode is None

    async def _watch(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            code = await self._process.wait()
            pause = FIRST_PAUSE_SECONDS if time.monotonic() - began > STABLE_SECONDS else pause
            log.error("nats-server ended with %s; it starts again in %.2f s; %s says why",
                      code, pause, self._plan.log_file)  # fmt: skip
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)
            self.restarts += 1
            await self._start()

    async def _stop(self) -> None:
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _last_lines(self) -> str:
        return self._plan.log_file.read_bytes()[-LAST_LINES_BYTES:].decode(errors="replace").strip()
