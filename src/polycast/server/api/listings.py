"""Topics, connections and counters, by request.

    polycast/topics        {"limit"?, "search"?, "topic"?, "pattern"?}
                           {"total", "time", "topics": [{"topic", ...}]}
    polycast/connections   {"limit"?, "patterns"?}           {"total", "connections": [{"name", "listener", ...}]}
    polycast/stats                                           counters, for each listener and dialect

`topic` selects one topic; `search` those with a text in their name, and `pattern` those that match, the most
recently published first; without them, topics come in no order. `patterns` is the number of patterns in the row of
a connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import UTC, datetime
from heapq import nlargest
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Struct

from polycast.broker import requests
from polycast.model import Body, parse_pattern
from polycast.routing import Topic
from polycast.server.core import Core
from polycast.server.dispatch.bodies import NoFields, RouteError, read_request
from polycast.server.io.connection import Connection
from polycast.server.observe.pages import measure_queues, times_of, totals_of
from polycast.server.stats.counters import Counters, Totals
from polycast.version import VERSION

ROWS_AT_MOST = 10_000
ROWS_A_TURN = 20_000
"""Rows for all requests of one read; the event loop does nothing else meanwhile."""
PATTERNS_AT_MOST = 100

Limit = Annotated[int, Meta(ge=0, le=ROWS_AT_MOST)]
Name = Annotated[str, Meta(max_length=65_536)]


class TopicListing(Struct, forbid_unknown_fields=True):
    limit: Limit = 1000
    search: Name | None = None
    topic: Name | None = None
    pattern: Name | None = None


class ConnectionListing(Struct, forbid_unknown_fields=True):
    limit: Limit = 1000
    patterns: Annotated[int, Meta(ge=0, le=PATTERNS_AT_MOST)] = 0


def to_filter(request: TopicListing) -> Callable[[str], bool] | None:
    """None: there is nothing to search for. Raises UsageError for an invalid pattern."""
    if request.pattern is not None:
        return parse_pattern(request.pattern).matches
    if request.search is None:
        return None
    text = request.search.lower()
    return lambda name: text in name.lower()


class Listings:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._router = core.hub.router
        self._started = time.monotonic()
        self._turn, self._rows = 0.0, 0
        self._searching = asyncio.Lock()
        """One search at a time: each holds a list of all topics."""

    # -- topics ------------------------------------------------------------------------------------------

    def topics(self, request: TopicListing) -> dict[str, Any]:
        if request.topic is not None:
            found = self._router.topics.get(request.topic.encode())
            return self._to_listing([found] if found else [])
        return self._to_listing(islice(self._router.topics, request.limit))

    async def search(self, limit: int, wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Topics whose names are wanted."""
        async with self._searching:
            return self._to_listing(await self._find(wanted, limit))

    async def _find(self, wanted: Callable[[str], bool], limit: int) -> list[Topic]:
        """Yields to the event loop between parts: there may be a million topics."""
        topics = list(self._router.topics)
        found: list[Topic] = []
        for begin in range(0, len(topics), ROWS_A_TURN):
            part = (topic for topic in topics[begin : begin + ROWS_A_TURN] if wanted(topic.name))
            found = nlargest(limit, [*found, *part], key=lambda topic: topic.last_offset)
            await asyncio.sleep(0)
        return found

    def _to_listing(self, topics: Iterable[Topic]) -> dict[str, Any]:
        now = time.time()
        rows = [self._to_topic(self._router.refresh(topic), now) for topic in topics]
        return {"total": len(self._router.topics), "time": now, "topics": rows}

    def _to_topic(self, topic: Topic, now: float) -> dict[str, Any]:
        last = self._core.offset_times.time_of(topic.last_offset, now)
        return {
            "topic": topic.name,
            "sequence": topic.next_sequence,
            "subscribers": len(topic.audience.members),
            "last": last and datetime.fromtimestamp(last, UTC).isoformat(timespec="milliseconds"),
        }

    # -- connections -------------------------------------------------------------------------------------

    def connections(self, body: Body, now: float) -> dict[str, Any]:
        request = read_request(body, ConnectionListing)
        self.spend(request.limit * (1 + request.patterns), now)
        connections = self._core.connections
        rows = [self._to_connection(each, request.patterns) for each in islice(connections, request.limit)]
        return {"total": len(connections), "connections": rows}

    def _to_connection(self, connection: Connection, patterns: int) -> dict[str, Any]:
        name, _, address = connection.name.partition(" ")
        now = time.monotonic()
        subscribed = connection.subscriber.patterns
        return {
            "name": name,
            "listener": connection.listener.role.listener,
            "dialect": connection.listener.role.dialect,
            "address": address,
            "identity": connection.guard.identity,
            "state": _state_of(connection),
            "subscriptions": len(subscribed),
            **({"patterns": [str(pattern) for pattern in islice(subscribed, patterns)]} if patterns else {}),
            "queue_bytes": connection.queued(),
            "messages_in": connection.messages_in,
            "messages_out": connection.queue.messages_out,
            "bytes_out": connection.queue.bytes_out,
            "open_seconds": round(now - connection.opened_at, 3),
            "idle_seconds": round(now - connection.touched_at, 3),
        }

    # -- counters ----------------------------------------------------------------------------------------

    def stats(self, body: Body, now: float) -> dict[str, Any]:
        read_request(body, NoFields)
        core = self._core
        self.spend(min(len(core.connections), ROWS_AT_MOST), now)
        measure_queues(core)
        limits = core.settings.limits.for_dialects()
        return {
            "version": VERSION,
            "uptime_seconds": round(time.monotonic() - self._started, 3),
            "connections": len(core.connections),
            "routes": len(core.requests.routes()),
            **_to_counts(totals_of(core)),
            **_syncs_of(core),
            "limits": {field.name: getattr(limits, field.name) for field in fields(limits)},
            "addresses": [{"listener": name, "address": str(address)} for name, address in core.addresses],
            "listeners": [
                {"listener": listener, "dialect": dialect, **_to_counts(counters)}
                for (listener, dialect), counters in core.counters.items()
            ],
        }

    def spend(self, rows: int, now: float) -> None:
        """Raises RouteError if one turn would list too many rows."""
        if now != self._turn:
            self._turn, self._rows = now, 0
        self._rows += rows
        if self._rows > ROWS_A_TURN:
            raise RouteError(requests.BUSY)


def _state_of(connection: Connection) -> str:
    if connection.closing:
        return "closing"
    if not connection.session.handshake_done:
        return "handshake"
    if connection.queue.spilled:
        return "from the log"
    budget = connection.listener.budget
    if budget.has_paused(connection):
        return "paused"
    return "behind" if connection in budget.behind else "open"


def _to_counts(counts: Counters | Totals) -> dict[str, Any]:
    return {field.name: getattr(counts, field.name) for field in fields(counts)}


def _syncs_of(core: Core) -> dict[str, Any]:
    times = times_of(core).log_sync_seconds
    return {"log_syncs": sum(times.counts()), "log_sync_seconds": round(times.sum, 6)}
