"""The routes that the broker answers itself: what goes on in it, and publishing by request.

    polycast/topics        {"limit"?}                        {"total", "topics": [{"topic", ...}]}
    polycast/connections   {"limit"?}                        {"total", "connections": [{"name", "listener", ...}]}
    polycast/stats                                           counters, for each listener and dialect
    polycast/publish       {"topic", "body"?, "format"?}     {"offset", "sequence"}
    polycast/history       {"pattern", "from"?, "limit"?}    [{"topic", "sequence", "offset", ...}]
    polycast/log, polycast/rows, polycast/places             see `rows`
    polycast/positions, polycast/pipelines                   see `positions`

A request that cannot be answered fails with a word, and where it helps, with a sentence behind it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from polycast.broker import requests
from polycast.dialects.ubre.messages import INVALID, NOTHING, compact, read_body
from polycast.errors import LimitError, ProtocolError, UsageError
from polycast.model import Body, Burst, Format
from polycast.server.connection import Connection
from polycast.server.counters import Counters, Totals
from polycast.server.pages import measure_queues, totals_of
from polycast.server.positions import Position
from polycast.version import VERSION

if TYPE_CHECKING:
    from polycast.log.log import Log
    from polycast.server.server import Server

logger = logging.getLogger("polycast.routes")

ROWS_AT_MOST = 10_000
ROWS_A_TURN = 20_000
"""What may be listed for all requests of one read. Nobody else is served meanwhile."""

T = TypeVar("T", bound=Struct)
U = TypeVar("U")

Answer = Callable[[bool, Body], None]
"""Takes whether it went well, and what is answered."""


class Listing(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=0, le=ROWS_AT_MOST)] = 1000


class Nothing(Struct, forbid_unknown_fields=True):
    pass


class Publishing(Struct, forbid_unknown_fields=True):
    topic: str
    body: Raw = NOTHING
    format: Literal["bytes", "text", "json", "none"] | None = None


class Encoded(Struct, forbid_unknown_fields=True):
    base64: str = msgspec.field(name="$base64")


class RouteError(Exception):
    """Why there is no answer, in the words that the requester gets."""


class Routes:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.settings.limits.for_dialects()
        self._started = time.monotonic()
        self._turn, self._rows = 0.0, 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes: dict[str, Callable[[Connection, Body, float], Any]] = {
            "polycast/topics": self._topics,
            "polycast/connections": self._connections,
            "polycast/stats": self._stats,
            "polycast/positions": self._positions,
            "polycast/pipelines": self._pipelines,
        }
        self._slow: dict[str, Callable[[Connection, Body, float, Answer], None]] = {
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

    def _topics(self, requester: Connection, body: Body, now: float) -> Any:
        router = self._server.exchange.hub.router
        limit = self._spend(_read(body, Listing).limit, now)
        rows = [
            {"topic": topic.name, "sequence": topic.next_sequence, "subscribers": len(topic.audience.members)}
            for topic in map(router.refresh, islice(router.topics, limit))
        ]
        return {"total": len(router.topics), "topics": rows}

    def _connections(self, requester: Connection, body: Body, now: float) -> Any:
        limit = self._spend(_read(body, Listing).limit, now)
        rows = [_to_row(connection) for connection in islice(self._server.connections, limit)]
        return {"total": len(self._server.connections), "connections": rows}

    def _stats(self, requester: Connection, body: Body, now: float) -> Any:
        _read(body, Nothing)
        server = self._server
        self._spend(min(len(server.connections), ROWS_AT_MOST), now)
        measure_queues(server)
        return {
            "version": VERSION,
            "uptime_seconds": round(time.monotonic() - self._started, 3),
            "connections": len(server.connections),
            "routes": len(server.exchange.requests.routes()),
            **_to_counts(totals_of(server)),
            "listeners": [
                {"listener": listener, "dialect": dialect, **_to_counts(counters)}
                for (listener, dialect), counters in server.counters.items()
            ],
        }

    def _positions(self, requester: Connection, body: Body, now: float) -> Any:
        position = _read(body, Position)
        self._server.positions.put(position, time.monotonic())
        return {"lag": position.lag(self._server.exchange.hub.next_offset)}

    def _pipelines(self, requester: Connection, body: Body, now: float) -> Any:
        _read(body, Nothing)
        log_next = self._server.exchange.hub.next_offset
        return {"pipelines": self._server.positions.to_rows(log_next, time.monotonic())}

    def _spend(self, rows: int, now: float) -> int:
        if now != self._turn:
            self._turn, self._rows = now, 0
        self._rows += rows
        if self._rows > ROWS_A_TURN:
            raise RouteError(requests.BUSY)
        return rows

    # -- publishing --------------------------------------------------------------------------------------

    def _publish(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        asked = _read(body, Publishing)
        topic = asked.topic.encode()
        payload, format_ = _to_payload(asked.body, asked.format)
        self._check("a topic", len(topic), self._limits.topic_bytes, "limits.topic_bytes")
        self._check("a payload", len(payload), self._limits.payload_bytes, "limits.payload_bytes")
        port = requester.port
        exchange = self._server.exchange
        burst = Burst.of(port.role.dialect, [(topic, payload, format_)])
        [published, *_] = exchange.publish(burst, now, requester.name).bursts
        [sequence] = published.sequences
        port.counters.messages_in += 1
        if exchange.keeping is None:
            answer(True, requests.value({"offset": None, "sequence": sequence}))
            return
        told = requests.value({"offset": published.offset, "sequence": sequence})
        exchange.keeping.when_settled(
            lambda reason: answer(not reason, requests.word(f"NotStored: {reason}") if reason else told)
        )

    def _check(self, what: str, size: int, limit: int, setting: str) -> None:
        if size > limit:
            raise RouteError(f"TooLarge: {LimitError(what, size, limit, setting)}")

    # -- the log -----------------------------------------------------------------------------------------

    def _history(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log = self._kept()
        from polycast.server.history import History, read_history, to_wanted  # needs pyarrow, as the log does

        wanted = _checked(to_wanted, _read(body, History))
        self._read_log(requester, answer, lambda: _to_body(read_history(log.folder, wanted, log.settled)))

    def _log(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log, node = self._kept(), self._server.node
        from polycast.server.rows import first_of

        _read(body, Nothing)

        def look() -> Body:
            after = log.settled
            place = {"first": first_of(log.folder, after), "next": after}
            return _to_body({**place, "node": node, "folder": str(log.folder.absolute())})

        self._read_log(requester, answer, look)

    def _rows_between(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log = self._kept()
        from polycast.server.rows import Asked, read_rows, to_wanted

        wanted = _checked(to_wanted, _read(body, Asked), requester.port.queue_bytes // 2)
        read = lambda: Body(read_rows(log.folder, wanted, log.settled), Format.BYTES)  # noqa: E731
        self._read_log(requester, answer, read)

    def _places(self, requester: Connection, body: Body, now: float, answer: Answer) -> None:
        log = self._kept()
        from polycast.server.rows import Place, check_place, find_place

        place = _read(body, Place)
        _checked(check_place, place)
        find = lambda: _to_body({"offset": find_place(log.folder, place, log.settled)})  # noqa: E731
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

        task = asyncio.get_running_loop().create_task(read())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _read(body: Body, kind: type[T]) -> T:
    """The body of a request to the broker. Whoever needs to say nothing may leave it out."""
    if body.format not in (Format.NONE, Format.JSON):
        raise RouteError("BadRequest: expected an object as the body")
    try:
        return msgspec.json.decode(body.payload or b"{}", type=kind)
    except INVALID as error:
        raise RouteError(f"BadRequest: {error}") from error


def _checked(check: Callable[..., U], *args: Any) -> U:
    """What it returns; what it finds wrong is the requester's mistake."""
    try:
        return check(*args)
    except (UsageError, ProtocolError) as error:
        raise RouteError(f"BadRequest: {error}") from error


def _to_body(value: Any) -> Body:
    return Body(msgspec.json.encode(value), Format.JSON)


def _to_payload(raw: Raw, wanted: str | None) -> tuple[bytes, Format]:
    """The same as a publication has, unless the request says which format it is meant to have."""
    payload, found = read_body(raw)
    if wanted is None or wanted == found:
        return payload, found
    if wanted == Format.JSON and found is Format.TEXT:
        return compact(bytes(raw)), Format.JSON
    if wanted == Format.BYTES and found is Format.TEXT:
        return payload, Format.BYTES
    if wanted == Format.BYTES and found is Format.JSON:
        return _from_base64(payload), Format.BYTES
    raise RouteError(f'BadRequest: a body that is {found} cannot be published as "{wanted}"')


def _from_base64(payload: bytes) -> bytes:
    try:
        return a2b_base64(msgspec.json.decode(payload, type=Encoded).base64, strict_mode=True)
    except (*INVALID, ValueError) as error:
        raise RouteError('BadRequest: bytes are a string or {"$base64": "..."}') from error


def _to_row(connection: Connection) -> dict[str, Any]:
    name, _, address = connection.name.partition(" ")
    now = time.monotonic()
    return {
        "name": name,
        "listener": connection.port.role.listener,
        "dialect": connection.port.role.dialect,
        "address": address,
        "subscriptions": len(connection.subscriber.patterns),
        "queue_bytes": connection.queued(),
        "bytes_out": connection.bytes_out,
        "open_seconds": round(now - connection.opened_at, 3),
        "idle_seconds": round(now - connection.touched_at, 3),
    }


def _to_counts(counts: Counters | Totals) -> dict[str, Any]:
    return {field.name: getattr(counts, field.name) for field in fields(counts)}
