"""The routes that the broker itself serves.

    polycast/topics, polycast/connections, polycast/stats    see `listings`
    polycast/close         {"name"}                          {"name"}: closes a connection
    polycast/publish                                         see `publish`
    polycast/history       {"pattern", "from"?, "limit"?}    [{"topic", "sequence", "offset", ...}]
    polycast/messages      {"topic", "from"?, "limit"?}      see `messages`
    polycast/log, polycast/rows, polycast/offsets            see `log_rows`
    polycast/positions, polycast/pipelines                   see `stats.pipeline_progress`
    polycast/cluster                                         only in a cluster, see `cluster.watch`

A failed request gets one word, and a sentence behind it where that helps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from polycast.broker import requests
from polycast.errors import PolycastError
from polycast.model import Body, Burst, Format, Pattern
from polycast.server.api.listings import Listings, TopicListing, to_filter
from polycast.server.api.publish import PublishRequest, to_burst
from polycast.server.core import Core
from polycast.server.dispatch.acks import TOO_MUCH_WAITS
from polycast.server.dispatch.bodies import NoFields, RouteError, check_request, read_request, to_json_body
from polycast.server.dispatch.publisher import Published
from polycast.server.dispatch.refusals import FORBIDDEN
from polycast.server.dispatch.request_handler import Respond
from polycast.server.io.connection import Connection
from polycast.server.stats.pipeline_progress import Position

if TYPE_CHECKING:
    from polycast.log.log import Log
    from polycast.log.read.work import Work
    from polycast.server.api.history import HistoryQuery
    from polycast.server.replay.replays import Replays

logger = logging.getLogger("polycast.routes")

T = TypeVar("T")


class CloseRequest(Struct, forbid_unknown_fields=True):
    name: str


class Routes:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._limits = core.settings.limits.for_dialects()
        self._listings = Listings(core)
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes: dict[str, Callable[[Connection, Body, float], Any]] = {
            "polycast/connections": lambda requester, body, now: self._listings.connections(body, now),
            "polycast/stats": lambda requester, body, now: self._listings.stats(body, now),
            "polycast/close": self._close,
            "polycast/positions": self._positions,
            "polycast/pipelines": self._pipelines,
        }
        self._slow: dict[str, Callable[[Connection, Body, float, Respond], None]] = {
            "polycast/topics": self._topics,
            "polycast/publish": self._publish,
            "polycast/history": self._history,
            "polycast/messages": self._messages,
            "polycast/log": self._log,
            "polycast/rows": self._rows,
            "polycast/offsets": self._offsets,
        }

    def __call__(self, requester: Connection, route: str, body: Body, now: float, respond: Respond) -> None:
        """Calls `respond` once, now or later."""
        try:
            if route in self._core.cluster_routes:
                self._later(self._request_cluster(route, body, respond))
            elif route in self._slow:
                self._slow[route](requester, body, now, respond)
            elif route in self._routes:
                respond(True, requests.json_body(self._routes[route](requester, body, now)))
            else:
                respond(False, requests.text_body(requests.NOT_FOUND))
        except RouteError as error:
            respond(False, requests.text_body(str(error)))

    async def list_here(self, route: str, body: Body) -> Any:
        """Responds to another node, for this node only."""
        if route == "polycast/close":
            return self._close("another node", body, time.time())
        if route == "polycast/topics":
            return await self._find_topics(body, time.time())
        return {"polycast/connections": self._listings.connections, "polycast/stats": self._listings.stats}[route](
            body, time.time()
        )

    async def _request_cluster(self, route: str, body: Body, respond: Respond) -> None:
        try:
            respond(True, requests.json_body(await self._core.cluster_routes[route](body)))
        except (RouteError, PolycastError) as error:
            respond(False, requests.text_body(str(error)))
        self._core.outbox.flush()

    # -- listings -----------------------------------------------------------------------------------

    def _topics(self, requester: Connection, body: Body, now: float, respond: Respond) -> None:
        request = read_request(body, TopicListing)
        self._listings.spend(request.limit, now)
        wanted = check_request(to_filter, request)
        if wanted is None:
            respond(True, requests.json_body(self._listings.topics(request)))
        else:
            self._later(self._search(request.limit, wanted, respond))

    async def _search(self, limit: int, wanted: Callable[[str], bool], respond: Respond) -> None:
        respond(True, requests.json_body(await self._listings.search(limit, wanted)))
        self._core.outbox.flush()

    async def _find_topics(self, body: Body, now: float) -> dict[str, Any]:
        request = read_request(body, TopicListing)
        self._listings.spend(request.limit, now)
        wanted = check_request(to_filter, request)
        return (
            self._listings.topics(request)
            if wanted is None
            else await self._listings.search(request.limit, wanted)
        )

    def _close(self, requester: Connection | str, body: Body, now: float) -> Any:
        """After the response: the requester may close its own connection."""
        name = read_request(body, CloseRequest).name
        named = name + " "
        for connection in self._core.connections:
            if f"{connection.name} ".startswith(named) and not connection.closing:
                reason = f"closed by {requester}"
                asyncio.get_running_loop().call_soon(connection.close_gracefully, reason)
                return {"name": name}
        raise RouteError(f"NoConnection: there is no connection {name!r}, or not any more")

    def _positions(self, requester: Connection, body: Body, now: float) -> Any:
        position = read_request(body, Position)
        self._core.progress.put(position, time.monotonic())
        return {"lag": position.lag(self._core.ledger.next_offset)}

    def _pipelines(self, requester: Connection, body: Body, now: float) -> Any:
        read_request(body, NoFields)
        log_next = self._core.ledger.next_offset
        return {"pipelines": self._core.progress.to_rows(log_next, time.monotonic())}

    # -- publishing --------------------------------------------------------------------------------------

    def _publish(self, requester: Connection, body: Body, now: float, respond: Respond) -> None:
        request = read_request(body, PublishRequest)
        dialect = requester.listener.role.dialect
        burst = to_burst(request, dialect, self._limits, self._core.settings.dialects)
        disguised = burst.dialect != dialect
        if disguised and not requester.guard.admin:
            raise RouteError(FORBIDDEN)
        self.publish_message(requester, burst, now, respond)

    def publish_message(self, requester: Connection, burst: Burst, now: float, respond: Respond) -> None:
        """One message; the response has its position, once it is durable."""
        if not requester.guard.may_publish(burst.topics[0]):
            respond(False, requests.text_body(FORBIDDEN))
        elif not self._core.publisher.has_room(len(burst)):
            respond(False, requests.text_body(f"{requests.BUSY}: {TOO_MUCH_WAITS}"))
        else:
            then = partial(self._respond_when_durable, respond)
            self._core.publishing.publish_message(requester, burst, now, then)

    def _respond_when_durable(self, respond: Respond, published: Published) -> None:
        assert published.applied
        [first, *_] = published.applied.proposal.bursts
        [sequence] = first.sequences
        offset = first.offset if self._core.log else None
        position = requests.json_body({"offset": offset, "sequence": sequence})
        self._core.acks.when_durable(
            lambda reason: respond(not reason, requests.text_body(f"NotDurable: {reason}") if reason else position)
        )

    # -- the log -----------------------------------------------------------------------------------------

    def _history(self, requester: Connection, body: Body, now: float, respond: Respond) -> None:
        log, replays = self._log_parts(requester)
        from polycast.server.api.history import (  # needs pyarrow, as the log does
            HistoryRequest,
            read_history,
            to_query,
        )

        wanted = check_request(to_query, read_request(body, HistoryRequest))
        newest = replays.last_offsets.end([wanted.pattern])
        gaps = log.housekeeping.inventory.gaps
        rows = read_history(replays.index, wanted, newest, log.durable_next, gaps, log.note_missed)
        self._read_allowed(requester, respond, wanted.pattern, rows, to_json_body)

    def _messages(self, requester: Connection, body: Body, now: float, respond: Respond) -> None:
        log, replays = self._log_parts(requester)
        from polycast.server.api.messages import MessagesRequest, read_messages, to_query

        wanted = check_request(to_query, read_request(body, MessagesRequest))
        self._check_sequence(wanted)
        newest = replays.last_offsets.end([wanted.pattern])
        gaps = log.housekeeping.inventory.gaps
        found = read_messages(replays.index, wanted, newest, log.durable_next, gaps, log.note_missed, log.id)
        self._read_allowed(requester, respond, wanted.pattern, found, lambda text: Body(text, Format.JSON))

    def _check_sequence(self, wanted: HistoryQuery) -> None:
        """As for a subscription: raises RouteError for a sequence that does not exist yet."""
        topics, name = self._core.hub.router.topics, wanted.pattern.value
        topic = topics.get(name.encode())
        reached = topic.next_sequence if topic else topics.floor
        if wanted.start and (wanted.start.sequence or 0) > reached:
            there = f"{name!r} has come to sequence {reached:,}, there is no {wanted.start.sequence:,} yet"
            behind = self._core.subscriptions.in_cluster
            raise RouteError(
                f"{requests.BUSY}: {there}; this node may be behind: try again, or another node"
                if behind
                else f"BadRequest: {there}; start at {reached:,} or at latest"
            )

    def _log(self, requester: Connection, body: Body, now: float, respond: Respond) -> None:
        log, replays = self._log_parts(requester)
        node = self._core.node
        from polycast.log.read.work import once
        from polycast.server.api.log_rows import LogRequest, find_end, first_of, size_of
        from polycast.server.api.rows_query import to_patterns

        request = read_request(body, LogRequest)
        if request.patterns is not None:
            after, patterns = log.durable_next, check_request(to_patterns, request.patterns)
            end = replays.last_offsets.end(patterns if after > request.from_ else [], request.from_)
            self._read_log(requester, respond, find_end(end, after), to_json_body)
            return

        def look() -> dict[str, Any]:
            after = log.durable_next
            position = {"first": first_of(log.folder, after), "next": after, **size_of(log.folder)}
            return {**position, "node": node, "folder": str(log.folder.absolute())}

        self._read_log(requester, respond, once(look), to_json_body)

    def _rows(self, requester: Connection, body: Body, now: float, respond: Respond) -> None:
        log, replays = self._log_parts(requester)
        from polycast.server.api.log_rows import read_rows
        from polycast.server.api.rows_query import RowsRequest, to_query

        wanted = check_request(to_query, read_request(body, RowsRequest), requester.listener.queue_bytes)
        rows = read_rows(replays.index, wanted, log.durable_next, log.note_missed)
        self._read_log(requester, respond, rows, lambda found: Body(found, Format.BYTES))

    def _offsets(self, requester: Connection, body: Body, now: float, respond: Respond) -> None:
        log, _ = self._log_parts(requester)
        from polycast.server.api.log_rows import PositionRequest, check_position, find_position

        request = read_request(body, PositionRequest)
        check_request(check_position, request)
        offset = find_position(log.folder, request, log.durable_next)
        self._read_log(requester, respond, offset, lambda found: to_json_body({"offset": found}))

    def _log_parts(self, requester: Connection) -> tuple[Log, Replays]:
        """Raises RouteError if there is no log, or if too many requests of the requester wait."""
        parts = self._core.log_parts
        if parts is None:
            raise RouteError("NoLog: this broker has no log")
        parts.replays.readers.admit(requester)
        return parts.log, parts.replays

    def _read_allowed(
        self,
        requester: Connection,
        respond: Respond,
        pattern: Pattern,
        work: Work[T],
        to_body: Callable[[T], Body],
    ) -> None:
        """Needs the right to subscribe to the pattern."""
        if not requester.guard.may_subscribe(pattern):
            raise RouteError(FORBIDDEN)

        def respond_if_allowed(success: bool, body: Body) -> None:
            """The requester may have lost the right while the read waited for its turns."""
            may = requester.guard.may_subscribe(pattern)
            respond(success and may, body if may else requests.text_body(FORBIDDEN))

        self._read_log(requester, respond_if_allowed, work, to_body)

    def _read_log(
        self, requester: Connection, respond: Respond, work: Work[T], to_body: Callable[[T], Body]
    ) -> None:
        """Reads in the turns of the requester. Past its limits the request fails at once."""
        assert self._core.log_parts
        read = self._core.log_parts.replays.readers.request(requester, _to_work(work, to_body))
        read.add_done_callback(partial(self._respond_read, requester, respond))

    def _respond_read(self, requester: Connection, respond: Respond, read: asyncio.Future[Body]) -> None:
        if read.cancelled():  # the requester closed
            return
        match read.exception():
            case None:
                respond(True, read.result())
            case RouteError() as error:
                respond(False, requests.text_body(str(error)))
            case error:
                logger.error("%s: the request failed", requester, exc_info=error)
                respond(False, requests.text_body("Failed: the log cannot be read; see the broker's log"))
        self._core.outbox.flush()

    def _later(self, response: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(response)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _to_work(work: Work[T], to_body: Callable[[T], Body]) -> Work[Body]:
    """Encodes the result in the thread as well."""
    return to_body((yield from work))
