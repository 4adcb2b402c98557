from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT, NO_RECONNECT
from polycast.cli.rights import needing
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Body

if TYPE_CHECKING:
    from polycast.cli.program_runner import ProgramRunner
    from polycast.client import AsyncClient, Response

NAME = "reply"
HELP = """Respond to requests for a route with the output of a program. The dialect is ubre.

The program runs once for each request. It gets the body on stdin, and no part of it on the command line; no shell
is involved. Its stdout is the body of the response: JSON if it parses as JSON, otherwise text without the last
line break, or bytes if it is not UTF-8. If the exit code is not 0, the request fails with the last line of stderr.

A request fails at once while 100 others wait. When the broker goes away, reply connects again. Options go before
ROUTE: the rest of the line is the program with its arguments."""
EXAMPLE = "polycast reply --parallel 2 text/sort sort --unique"
CONTEXT = {"allow_interspersed_args": False}

FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS = 0.2, 5.0
"""The pause before a new connection doubles from the first to the last."""


def run(
    route: str = typer.Argument(help="The route."),
    command: list[str] = typer.Argument(help="The program and its arguments.", metavar="COMMAND"),
    at: str = AT,
    parallel: int = typer.Option(4, min=1, max=1000, help="Programs that run at the same time."),
    timeout: float = typer.Option(30.0, min=0.001, max=1e6, help="Seconds that a program may run."),
    count: int = typer.Option(0, min=0, help="Stop after this many responses; 0: never."),
    no_reconnect: bool = NO_RECONNECT,
) -> None:
    if command[0].startswith("-"):
        raise UsageError(f"{command[0]} behind ROUTE is no program", "options go before ROUTE")
    if shutil.which(command[0]) is None:
        raise UsageError(
            f"cannot run {command[0]}: there is no such program", "PATH names the folders of programs"
        )
    with needing(f"serve {route}"):
        asyncio.run(_serve(route, command, at, parallel, timeout, count, not no_reconnect))


async def _serve(
    route: str, command: list[str], at: str, parallel: int, timeout: float, count: int, reconnect: bool
) -> None:
    from polycast.cli.program_runner import ProgramRunner

    service = Service(ProgramRunner(command, parallel, timeout), count)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, service.done.set)
    await service.run(route, at, reconnect)


class Service:
    """Responds to requests, over one connection after the other, until it is done."""

    def __init__(self, runner: ProgramRunner, count: int) -> None:
        self._runner = runner
        self._left = count
        self.done = asyncio.Event()

    async def run(self, route: str, at: str, reconnect: bool) -> None:
        from polycast.client import connect_async

        delay = 0.0
        while not self.done.is_set():
            try:
                async with await connect_async("ubre", at, reconnect=False) as client:
                    await client.serve(route, self._handle)
                    stdio.notice(f"serving {route} at {client.address}")
                    delay = FIRST_DELAY_SECONDS
                    await self._read(client)
            except RefusedError:
                raise
            except RemoteError as error:
                if not (delay and reconnect):
                    raise
                if delay == FIRST_DELAY_SECONDS:
                    stdio.notice(f"{error}; connecting again")
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.done.wait(), delay)
                delay = min(2 * delay, LAST_DELAY_SECONDS)

    async def _handle(self, body: Body) -> Response:
        response = await self._runner.run(body)
        self._left -= 1
        if self._left == 0:
            self.done.set()
        return response

    async def _read(self, client: AsyncClient) -> None:
        """Reads until the service is done. Raises RemoteError if the broker closes the connection."""
        reading, ending = asyncio.create_task(_read_all(client)), asyncio.create_task(self.done.wait())
        await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if self.done.is_set():
            reading.cancel()
        else:
            await reading


async def _read_all(client: AsyncClient) -> None:
    """Reads messages; requests are handled on the way."""
    async for _ in client.messages():
        pass
    raise RemoteError(f"{client.address}: the broker closed the connection")
