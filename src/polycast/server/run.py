"""A broker as a process: from start to signal, with an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from polycast.dialects.session import Page
from polycast.log.files.permissions import UMASKS, check_owners, protect, restrict
from polycast.server.exposure import find_warnings
from polycast.server.reload import reload
from polycast.server.server import Server
from polycast.server.settings import Settings
from polycast.server.start_check import check
from polycast.server.tuning import exclude_from_collections, tune_process

if TYPE_CHECKING:
    from polycast.log.log import Log

log = logging.getLogger("polycast.server")

ONE_SIGNAL_SECONDS = 0.2

Read = Callable[[], Settings]


def _stop_signal() -> asyncio.Event:
    """Set by the first signal; one that follows it ends the process at once.

    Some tools (timeout, make) signal a process and its whole group: signals that arrive together count as one.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first = 0.0

    def handle() -> None:
        nonlocal first
        if not stop.is_set():
            first = time.monotonic()
            stop.set()
        elif time.monotonic() - first > ONE_SIGNAL_SECONDS:
            os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)
    return stop


def _handle_hangups(stop: asyncio.Event, reload: Callable[[], None]) -> None:
    """SIGHUP reloads the settings. If the terminal has gone, it stops the broker, except under nohup."""
    leaves = _has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def handle() -> None:
        if leaves and not _has_terminal():
            stop.set()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, handle)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def open_log(settings: Settings, exact: bool = False, seed: str = "") -> Log | None:
    """`exact`, `seed`: see `Log.open`."""
    if not settings.log.enabled:
        return None
    # pyarrow is slow to import; a broker without a log does not need it
    from polycast.log.files.arrow import leave_pandas_out

    leave_pandas_out()
    from polycast.log.log import Log

    check_owners(Path(settings.log.data))
    opened = Log.open(settings.log, settings.limits.topics, exact=exact, seed=seed)
    protect(Path(settings.log.data), restrict(0))  # after the lock is held
    return opened


async def run(settings: Settings, show: Callable[[str], None], pages: Mapping[str, Page], read: Read) -> None:
    """A broker from start to signal. `show` gets the lines for stdout, `read` reads the settings again."""
    await run_server(Server(settings, open_log(settings), pages), show, read)


async def run_server(
    server: Server, show: Callable[[str], None], read: Read, failed: asyncio.Future[object] | None = None
) -> None:
    """`failed`: done with an exception if the broker must stop by itself."""
    stop = _stop_signal()
    await server.start()
    _handle_hangups(stop, partial(reload, server, read))
    _log_start(server)
    exclude_from_collections()
    for name, address in server.core.addresses:
        show(f"listening {name} {address}")
    show("ready")
    stopping: asyncio.Future[object] = asyncio.ensure_future(stop.wait())
    waits: list[asyncio.Future[object]] = [stopping, *([failed] if failed else [])]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await server.stop()
    for (listener, dialect), counters in server.core.counters.items():
        name = listener if listener.startswith(dialect) else f"{listener} ({dialect})"
        log.info("%s: %s", name, counters.summary())
    log.info("%s", server.core.summary())
    if failed and failed.done():
        failed.result()


def _log_start(server: Server) -> None:
    """Logs the retention and the warnings about the settings."""
    if server.core.log:
        log.info("%s: %s", server.core.log.folder, server.core.log.housekeeping.describe())
    for warning in find_warnings(server.core.settings):
        log.log(warning.level, "%s", warning)


Start = Callable[[Settings, Callable[[str], None], Mapping[str, Page], Read], Coroutine[Any, Any, None]]


def serve(
    settings: Settings, show: Callable[[str], None], pages: Mapping[str, Page], read: Read, start: Start = run
) -> None:
    restrict(UMASKS[settings.log.access])
    check(settings)
    tune_process()
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(start(settings, show, pages, read))
