"""The clients of the demo. Each has its own connection, and reconnects when the broker restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Protocol

from polycast.client import AsyncClient, Response, connect_async, from_body, to_body
from polycast.client.connect import DIALECTS
from polycast.demo.generators import SYMBOLS, Chat, Orders, Sensors, Ticker, Visits
from polycast.errors import PolycastError
from polycast.model import Body, Message, parse_pattern

log = logging.getLogger("polycast.demo")

RECONNECT_SECONDS = 1.0
RESPONSE_SECONDS = 5.0
PRICE_ROUTE = "demo/price"
"""Served by the demo itself: the price of a symbol."""
REQUEST_TICKS = 4


class Generator(Protocol):
    def tick(self, number: int) -> Iterator[Message]: ...


@dataclass(frozen=True)
class DemoClient:
    dialect: str
    publishing: bool
    work: Callable[[AsyncClient], Awaitable[None]]
    """Runs until the connection fails."""

    @property
    def listener(self) -> str:
        dialect = DIALECTS[self.dialect]
        return dialect.publishers if self.publishing else dialect.subscribers


def demo_clients(random: Random) -> list[DemoClient]:
    ticker = Ticker(random)
    publishers = [
        DemoClient("fanout", True, partial(publish, Chat(random), 0.4)),
        DemoClient("nanomsg", True, partial(publish, Sensors(random), 0.125)),
        DemoClient("hermod", True, partial(publish, Orders(random), 0.2)),
        DemoClient("simplest", True, partial(publish, ticker, 0.2)),
        DemoClient("ubre", True, partial(browse, Visits(random), random)),
        DemoClient("ubre", True, partial(serve_prices, ticker)),
    ]
    return publishers + [
        DemoClient(dialect, False, partial(subscribe, patterns)) for dialect, patterns in SUBSCRIBERS
    ]


SUBSCRIBERS: Sequence[tuple[str, Sequence[str]]] = (
    ("fanout", ("chat.>",)),
    ("fanout", ("chat.lobby", "orders.new")),
    ("nanomsg", ("sensors.>",)),
    ("hermod", ("orders.>",)),
    ("hermod", ("~cellar", "web.>")),
    ("simplest", ("ticker.>",)),
    ("simplest", ("chat.support",)),
    ("ubre", ("orders.paid", "chat.lobby", "sensors.hall.temperature")),
)


# -- work ------------------------------------------------------------------------------------------------


async def publish(generator: Generator, seconds: float, client: AsyncClient) -> None:
    async for number in ticks(seconds):
        await client.publish(list(generator.tick(number)))


async def subscribe(patterns: Sequence[str], client: AsyncClient) -> None:
    await client.subscribe(map(parse_pattern, patterns))
    async for _ in client.messages():
        pass


async def serve_prices(ticker: Ticker, client: AsyncClient) -> None:
    def price(body: Body) -> Body | Response:
        symbol = from_body(body)
        found = ticker.price(symbol) if isinstance(symbol, str) else None
        return to_body({"symbol": symbol, "price": found}) if found else Response(False, to_body("NoSuchSymbol"))

    await client.serve(PRICE_ROUTE, price)
    async for _ in client.messages():
        pass


async def browse(generator: Generator, random: Random, client: AsyncClient) -> None:
    """Acts as a browser page: publishes clicks and requests prices."""
    async for number in ticks(0.25):
        await client.publish(list(generator.tick(number)))
        if number % REQUEST_TICKS == 0:
            await client.request(PRICE_ROUTE, to_body(random.choice(SYMBOLS)), RESPONSE_SECONDS)


async def ticks(seconds: float) -> AsyncIterator[int]:
    """0, 1, 2 ... at this interval. Missed ticks are not made up for."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for number in count():
        yield number
        due = max(due + seconds, loop.time())
        await asyncio.sleep(due - loop.time())


# -- all clients -----------------------------------------------------------------------------------------


async def run(addresses: Mapping[str, str], ready: Callable[[], None], random: Random) -> None:
    """Runs until cancelled. Calls `ready` when all clients have connected once."""
    clients = [client for client in demo_clients(random) if client.listener in addresses]
    missing = len(clients)

    def connected() -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            ready()

    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(_run_client(client, addresses[client.listener], connected))


async def _run_client(demo: DemoClient, address: str, connected: Callable[[], None]) -> None:
    reported = False
    while True:
        try:
            async with await connect_async(demo.dialect, address, demo.publishing, reconnect=False) as client:
                if not reported:
                    connected()
                    reported = True
                await demo.work(client)
        except (PolycastError, OSError) as error:
            log.debug("%s: %s", demo.dialect, error)
        await asyncio.sleep(RECONNECT_SECONDS)
