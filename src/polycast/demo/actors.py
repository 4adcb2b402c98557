"""Who speaks and who listens in the demo. Each has a connection of its own, and comes back with the broker."""

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
from polycast.demo.scenes import SYMBOLS, Chat, Orders, Sensors, Ticker, Visits
from polycast.errors import PolycastError
from polycast.model import Body, Message, parse_pattern

log = logging.getLogger("polycast.demo")

AGAIN_SECONDS = 1.0
"""How long a broker that is not there is left alone."""
ANSWER_SECONDS = 5.0
PRICE = "demo/price"
"""A route that the demo answers itself: a symbol's price."""
QUESTION_TURNS = 4


class Scene(Protocol):
    def turn(self, number: int) -> Iterator[Message]: ...


Play = Callable[[AsyncClient], Awaitable[None]]


@dataclass(frozen=True)
class Actor:
    dialect: str
    publishing: bool
    play: Play
    """With a connection, until that fails."""

    @property
    def listener(self) -> str:
        dialect = DIALECTS[self.dialect]
        return dialect.publishers if self.publishing else dialect.subscribers


def cast(chance: Random) -> list[Actor]:
    ticker = Ticker(chance)
    speakers = [
        Actor("fanout", True, partial(speak, Chat(chance), 0.4)),
        Actor("nanomsg", True, partial(speak, Sensors(chance), 0.125)),
        Actor("hermod", True, partial(speak, Orders(chance), 0.2)),
        Actor("simplest", True, partial(speak, ticker, 0.2)),
        Actor("ubre", True, partial(surf, Visits(chance), chance)),
        Actor("ubre", True, partial(answer, ticker)),
    ]
    return speakers + [Actor(dialect, False, partial(listen, patterns)) for dialect, patterns in LISTENERS]


LISTENERS: Sequence[tuple[str, Sequence[str]]] = (
    ("fanout", ("chat.>",)),
    ("fanout", ("chat.lobby", "orders.new")),
    ("nanomsg", ("sensors.>",)),
    ("hermod", ("orders.>",)),
    ("hermod", ("~cellar", "web.>")),
    ("simplest", ("ticker.>",)),
    ("simplest", ("chat.support",)),
    ("ubre", ("orders.paid", "chat.lobby", "sensors.hall.temperature")),
)


# -- what they do ----------------------------------------------------------------------------------------


async def speak(scene: Scene, seconds: float, client: AsyncClient) -> None:
    """A turn every so many seconds."""
    async for number in turns(seconds):
        await client.publish(list(scene.turn(number)))


async def listen(patterns: Sequence[str], client: AsyncClient) -> None:
    await client.subscribe(map(parse_pattern, patterns))
    async for _ in client.messages():
        pass


async def answer(ticker: Ticker, client: AsyncClient) -> None:
    def price(body: Body) -> Body | Response:
        symbol = from_body(body)
        found = ticker.price(symbol) if isinstance(symbol, str) else None
        return to_body({"symbol": symbol, "price": found}) if found else Response(False, to_body("NoSuchSymbol"))

    await client.serve(PRICE, price)
    async for _ in client.messages():
        pass


async def surf(scene: Scene, chance: Random, client: AsyncClient) -> None:
    """As a page in a browser does: it tells what is clicked, and asks what things cost."""
    async for number in turns(0.25):
        await client.publish(list(scene.turn(number)))
        if number % QUESTION_TURNS == 0:
            await client.request(PRICE, to_body(chance.choice(SYMBOLS)), ANSWER_SECONDS)


async def turns(seconds: float) -> AsyncIterator[int]:
    """The numbers from 0 on, one every so many seconds. Turns that were missed are not made up for."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for number in count():
        yield number
        due = max(due + seconds, loop.time())
        await asyncio.sleep(due - loop.time())


# -- the whole company -----------------------------------------------------------------------------------


async def play(places: Mapping[str, str], ready: Callable[[], None], chance: Random) -> None:
    """Until it is cancelled. `ready` is called when all are on stage for the first time."""
    actors = [actor for actor in cast(chance) if actor.listener in places]
    missing = len(actors)

    def on_stage() -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            ready()

    async with asyncio.TaskGroup() as company:
        for actor in actors:
            company.create_task(_perform(actor, places[actor.listener], on_stage))


async def _perform(actor: Actor, address: str, on_stage: Callable[[], None]) -> None:
    said = False
    while True:
        try:
            async with await connect_async(actor.dialect, address, actor.publishing) as client:
                if not said:
                    on_stage()
                    said = True
                await actor.play(client)
        except (PolycastError, OSError) as error:
            log.debug("%s: %s", actor.dialect, error)
        await asyncio.sleep(AGAIN_SECONDS)
