"""The routes that the broker answers itself: what goes on in it, and publishing by request.

    polycast/topics, polycast/connections, polycast/stats    see `listings`
    polycast/close         {"name"}                          {"name"}: this connection ends
    polycast/publish                                         see `publishing`
    polycast/history       {"pattern", "from"?, "limit"?}    [{"topic", "sequence", "offset", ...}]
    polycast/log, polycast/rows, polycast/places             see `rows`
    polycast/positions, polycast/pipelines                   see `positions`

A request that cannot be answered fails with a word, and where it helps, with a sentence behind it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from polycast.broker import requests
from polycast.model import Body, Format
from polycast.server.asking import FORBIDDEN
from polycast.server.bodies import Nothing, RouteError, checked, read_asked, to_json_body
from polycast.server.connection import Connection
from polycast.server.listings import Listings, TopicListing
from polycast.server.positions import Position
from polycast.server.publishing import Publishing, to_burst

if TYPE_CHECKING:
    from polycast.log.log import Log
    from polycast.server.server import Server

logger = logging.getLogger("polycast.routes")

Answer = Callable[[bool, Body], None]
"""Takes whether it went well, and what is answered."""


class Ending(Struct, forbid_unknown_fields=True):
    name: str


class Routes:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.settings.limits.for_dialects()
        self._listings = Listings(server)
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes: dict[str, Callable[[Connection, Body, float], Any]] = {
            "polycast/connections": lambda requester, body, now: self._listings.connections(body, now),
            "polycast/stats": lambda requester, body, now: self._listings.stats(body, now),
            "polycast/close": self._close,
            "polycast/positions": self._positions,
            "polycast/pipelines": self._pipelines,
        }
        self._slow: dict[str, Callable[[Connection, Body, float, Answer], None]] = {
            "polycast/topics": self._topics,
            "polycast/publish": self._publish,
            "polycast/history": self._history,
            "polycast/log": self._log,
            "polycast/rows": self._rows_between,
            "polycast/places": self._places,
        }

    def __call__(self, requester: Connection, route: str, body: Body, now: float, answer: Answer) -> None:
        """`answer` is called once, now or later."""
        try:
            if route in self._slow:
                self._slow[route](requester, body, now, answer)
            elif route in self._routes:
                answer(True, requests.value(self._routes[route](requester, body, now)))
            else:
                answer(False, requests.word(requests.NOT_FOUND))
        except RouteError as error:
            answer(False, requests.word(str(error)))

    # -- what there is -----------------------------------------------------------------------------------

    def _topics(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        asked = read_asked(body, TopicListing)
        self._listings.spend(asked.limit, now)
        if asked.search is None:
            answer(True, requests.value(self._listings.topics(asked)))
        else:
            self._later(self._search(asked, asked.search, answer))

    async def _search(self, asked: TopicListing, text: str, answer: Answer) -> None:
        answer(True, requests.value(await self._listings.search(asked, text)))
        self._server.exchange.outgoing.flush()

    def _close(self, requester: Connection, body: Body, now: float) -> Any:
        """Not before the answer is on its way: it may be the requester itself."""
        name = read_asked(body, Ending).name
        named = name + " "
        for connection in self._server.connections:
            if f"{connection.name} ".startswith(named) and not connection.closing:
                reason = f"closed by {requester}"
                asyncio.get_running_loop().call_soon(connection.dismiss, reason)
                return {"name": name}
        raise RouteError(f"NoConnection: there is no connection {name!r}, or not any more")

    def _positions(self, requester: Connection, body: Body, now: float) -> Any:
        position = read_asked(body, Position)
        self._server.positions.put(position, time.monotonic())
        return {"lag": position.lag(self._server.exchange.hub.next_offset)}

    def _pipelines(self, requester: Connection, body: Body, now: float) -> Any:
        read_asked(body, Nothing)
        log_next = self._server.exchange.hub.next_offset
        return {"pipelines": self._server.positions.to_rows(log_next, time.monotonic())}

    # -- publishing --------------------------------------------------------------------------------------

    def _publish(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        asked = read_asked(body, Publishing)
        port, exchange = requester.port, self._server.exchange
        burst = to_burst(asked, port.role.dialect, self._limits)
        disguised = burst.dialect != port.role.dialect
        if not requester.guard.may_publish(burst.topics[0]) or (disguised and not requester.guard.admin):
            raise RouteError(FORBIDDEN)
        if exchange.rates:
            exchange.rates.charge(requester, 1, len(burst.block))
        [published, *_] = exchange.publish(burst, now, requester.name).bursts
        [sequence] = published.sequences
        port.counters.messages_in += 1
        requester.messages_in += 1
        if exchange.keeping is None:
            answer(True, requests.value({"offset": None, "sequence": sequence}))
            return
        told = requests.value({"offset": published.offset, "sequence": sequence})
        exchange.keeping.when_settled(
            lambda reason: answer(not reason, requests.word(f"NotStored: {reason}") if reason else told)
        )

    # -- the log -----------------------------------------------------------------------------------------

    def _history(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log = self._kept()
        from polycast.server.history import History, read_history, to_wanted  # needs pyarrow, as the log does

        wanted = checked(to_wanted, read_asked(body, History))
        if not requester.guard.may_subscribe(wanted.pattern):
            raise RouteError(FORBIDDEN)
        self._read_log(requester, answer, lambda: to_json_body(read_history(log.folder, wanted, log.settled)))

    def _log(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log, node = self._kept(), self._server.node
        from polycast.server.rows import first_of, size_of

        read_asked(body, Nothing)

        def look() -> Body:
            after = log.settled
            place = {"first": first_of(log.folder, after), "next": after, **size_of(log.folder)}
            return to_json_body({**place, "node": node, "folder": str(log.folder.absolute())})

        self._read_log(requester, answer, look)

    def _rows_between(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log = self._kept()
        from polycast.server.rows import Asked, read_rows, to_wanted

        wanted = checked(to_wanted, read_asked(body, Asked), requester.port.queue_bytes // 2)
        read = lambda: Body(read_rows(log.folder, wanted, log.settled), Format.BYTES)  # noqa: E731
        self._read_log(requester, answer, read)

    def _places(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log = self._kept()
        from polycast.server.rows import Place, check_place, find_place

        place = read_asked(body, Place)
        checked(check_place, place)
        find = lambda: to_json_body({"offset": find_place(log.folder, place, log.settled)})  # noqa: E731
        self._read_log(requester, answer, find)

    def _kept(self) -> Log:
        if self._server.log is None:
            raise RouteError("NotKept: that is in the log, and this broker keeps none")
        return self._server.log

    def _read_log(self, requester: Connection, answer: Answer, act: Callable[[], Body]) -> None:
        """In a thread: nobody else has to wait."""
        replays = self._server.exchange.replays
        assert replays

        async def read() -> None:
            try:
                found = await replays.in_thread(act)
            except Exception:
                logger.exception("%s: its request failed", requester)
                answer(False, requests.word("Failed: the log cannot be read; the broker's own words say why"))
            else:
                answer(True, found)
            self._server.exchange.outgoing.flush()

        self._later(read())

    def _later(self, answering: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
