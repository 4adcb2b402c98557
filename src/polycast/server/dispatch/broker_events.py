"""Events about connections: messages of the broker under `polycast/events/`, in JSON.

    start, stop    {"version", "node"}
    connect        {"connection", "dialect", "listener", "address"}; all events below have these fields as well
    disconnect     {..., "reason", "detail"}
    subscribe      {..., "pattern", "kind", "value", "echo", "from"?}
    unsubscribe    {..., "pattern", "kind", "value", "echo"}
    drop           {..., "count", "bytes", "first", "next"}       messages dropped for a slow subscriber
    miss           {..., "first", "next", "reason"}               messages of the log that a subscriber misses
    refuse         {..., "reason", "count"}                       refused input
    summary        {"events": [{"event", "listener", "dialect", "reason", "count"}]}

Their offsets are exact: a subscription gets the live messages between its `subscribe` event and the event that
ends it: an `unsubscribe`, the connection's `disconnect`, or a `start` or `stop` of the broker. Pending events are
therefore published before any burst. Events of one turn of the event loop form one burst. Drops and refusals are
summed up and reported once a second.

Peers without a known identity cannot fill the log: past `events.unknown_per_second` their connects, disconnects
and refusals are only counted, and reported in one summary a second. A connect that was only counted is reported
when the peer shows an identity with rights, or subscribes: the events of a subscription are always complete.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from polycast.dialects.start_positions import to_json_start
from polycast.model import RESERVED_PREFIX, Burst, Format, Pattern, Subscribe
from polycast.server.dispatch.outbox import Outbox
from polycast.server.dispatch.publisher import Publisher
from polycast.server.io.connection import Connection
from polycast.version import VERSION

log = logging.getLogger("polycast.events")

TOPIC = RESERVED_PREFIX + "events/"
DIALECT = "polycast"
COUNT_SECONDS = 1.0
"""Between two reports of drops and refusals."""


@dataclass(slots=True)
class Counted:
    """Drops and refusals of one connection since the last report."""

    messages: int = 0
    bytes: int = 0
    first: int = 0
    next: int = 0
    """The dropped messages lie between these offsets."""
    refused: Counter[str] = field(default_factory=Counter)


class BrokerEvents:
    def __init__(self, publisher: Publisher, outbox: Outbox, unknown_per_second: int) -> None:
        self._publisher = publisher
        self._outbox = outbox
        self._unknown_per_second = unknown_per_second
        self._unknown_sent = (0.0, 0)
        """Start of the current second, and how many events about unknown peers were published in it."""
        self._summary: Counter[tuple[str, str, str, str]] = Counter()
        """Events that were only counted, by event, listener, dialect and reason."""
        self._open = False
        self.rows: list[tuple[bytes, bytes, Format]] = []
        """Pending events."""
        self._heads: dict[Connection, bytes] = {}
        """The common fields of a connection's events, for connections whose `connect` was published."""
        self._counted: dict[Connection, Counted] = {}
        self._timed = False
        self._own_turn = False

    def start(self, node: str) -> None:
        self._open = True
        self._add("start", _to_json({"version": VERSION, "node": node}))
        self.publish()

    def stop(self, node: str) -> None:
        """Publishes the last event."""
        if self._open:
            self._report_counted()
            self._add("stop", _to_json({"version": VERSION, "node": node}))
            self.publish()
            self._open = False
            self._heads.clear()

    def publish(self) -> None:
        """Publishes all pending events."""
        rows, self.rows = self.rows, []
        if not rows:
            return
        if self._publisher.has_room(len(rows)):
            self._publisher.publish_own(Burst.of(DIALECT, rows), time.time())
        else:
            log.error("%s events are lost: the log is behind", f"{len(rows):,}")

    # -- events -------------------------------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        """Connections that only request http pages cause no event."""
        if self._takes_part(connection):
            if _is_known(connection) or self._may_report_unknown():
                self.admit(connection)
            else:
                self._sum_up(connection, "connect")

    def admit(self, connection: Connection) -> None:
        """From here on the events of this connection are published, beginning with `connect`."""
        if self._takes_part(connection) and connection not in self._heads:
            self._heads[connection] = _to_json(_about(connection))[:-1]
            self._add_about(connection, "connect")

    def disconnect(self, connection: Connection) -> None:
        reason, detail = connection.close_reason
        if connection in self._heads:
            if counted := self._counted.pop(connection, None):
                self._report(connection, counted)
            self._add_about(connection, "disconnect", reason=reason, detail=detail)
            del self._heads[connection]
        elif self._takes_part(connection):
            self._sum_up(connection, "disconnect", reason)

    def subscribe(self, connection: Connection, event: Subscribe) -> None:
        """To be called before the subscription begins."""
        self.admit(connection)
        if connection not in self._heads:
            return
        last = connection.listener.replay == "last" and event.start is None
        start = "last" if last else to_json_start(event.start, [event.pattern])
        more = {"from": start} if last or event.start else {}
        self._add_about(connection, "subscribe", **_to_words(connection, event.pattern), **more)
        if event.pattern.value.startswith(RESERVED_PREFIX):
            self.publish()  # before the subscriber receives events itself

    def unsubscribe(self, connection: Connection, pattern: Pattern) -> None:
        """To be called before the subscription ends."""
        if connection not in self._heads:
            return
        if pattern.value.startswith(RESERVED_PREFIX):
            self.publish()  # while the subscriber still receives them
        self._add_about(connection, "unsubscribe", **_to_words(connection, pattern))

    def drop(self, connection: Connection, messages: int, size: int) -> None:
        if connection in self._heads:
            first, after = self._publisher.in_delivery(connection.subscriber.committed)
            fresh = connection not in self._counted or not self._counted[connection].messages
            counted = self._count(connection)
            counted.messages += messages
            counted.bytes += size
            counted.first = first if fresh else counted.first
            counted.next = after

    def miss(self, connection: Connection, first: int, after: int, reason: str) -> None:
        """The log could not deliver these offsets to a subscriber."""
        if connection in self._heads:
            self._add_about(connection, "miss", first=first, next=after, reason=reason)

    def refuse(self, connection: Connection, reason: str, count: int) -> None:
        if connection in self._heads:
            self._count(connection).refused[reason] += count
        elif self._takes_part(connection):
            self._sum_up(connection, "refuse", reason, count)

    def _takes_part(self, connection: Connection) -> bool:
        return self._open and connection.session.carries_messages

    # -- summaries of unknown peers -----------------------------------------------------------------------

    def _may_report_unknown(self) -> bool:
        (began, sent), now = self._unknown_sent, time.monotonic()
        if now - began >= COUNT_SECONDS:
            began, sent = now, 0
        self._unknown_sent = began, sent + 1
        return sent < self._unknown_per_second

    def _sum_up(self, connection: Connection, event: str, reason: str = "", count: int = 1) -> None:
        self._start_timer()
        role = connection.listener.role
        self._summary[event, role.listener, role.dialect, reason] += count

    def _report_summary(self) -> None:
        summary, self._summary = self._summary, Counter()
        if summary:
            names = ("event", "listener", "dialect", "reason", "count")
            rows = [dict(zip(names, (*key, count), strict=True)) for key, count in summary.items()]
            self._add("summary", _to_json({"events": rows}))

    # -- sums of drops and refusals -----------------------------------------------------------------------

    def _count(self, connection: Connection) -> Counted:
        """A drop that an event caused starts no timer: its report could cause the next drop, for ever."""
        if not self._own_turn:
            self._start_timer()
        return self._counted.setdefault(connection, Counted())

    def _start_timer(self) -> None:
        if not self._timed:
            self._timed = True
            asyncio.get_running_loop().call_later(COUNT_SECONDS, self._time)

    def _time(self) -> None:
        self._timed = False
        self._report_counted()

    def _report_counted(self) -> None:
        self._report_summary()
        reported, self._counted = self._counted, {}
        for connection, counted in reported.items():
            self._report(connection, counted)

    def _report(self, connection: Connection, counted: Counted) -> None:
        if connection not in self._heads:
            return
        if counted.messages:
            offsets = {"first": counted.first, "next": counted.next}
            self._add_about(connection, "drop", count=counted.messages, bytes=counted.bytes, **offsets)
        for reason, count in counted.refused.items():
            if _is_known(connection) or self._may_report_unknown():
                self._add_about(connection, "refuse", reason=reason, count=count)
            else:
                self._sum_up(connection, "refuse", reason, count)

    # -- rows ---------------------------------------------------------------------------------------------

    def _add_about(self, connection: Connection, kind: str, /, **more: Any) -> None:
        head = self._heads[connection]
        self._add(kind, head + (b"," + _to_json(more)[1:] if more else b"}"))

    def _add(self, kind: str, payload: bytes) -> None:
        if not self.rows:
            asyncio.get_running_loop().call_soon(self._take_turn)
        self.rows.append(((TOPIC + kind).encode(), payload, Format.JSON))

    def _take_turn(self) -> None:
        """Publishes pending events at the end of the turn, unless a burst did so."""
        self.publish()
        self._own_turn = True
        try:
            self._outbox.flush()
        finally:
            self._own_turn = False


_to_json = msgspec.json.encode


def _is_known(connection: Connection) -> bool:
    return connection.guard.known and not connection.guard.has_no_rights


def _about(connection: Connection) -> dict[str, str]:
    role = connection.listener.role
    address = connection.name.partition(" ")[2]
    return {"connection": connection.name, "dialect": role.dialect, "listener": role.listener, "address": address}


def _to_words(connection: Connection, pattern: Pattern) -> dict[str, Any]:
    kind = type(pattern).__name__.lower()
    return {"pattern": str(pattern), "kind": kind, "value": pattern.value, "echo": connection.subscriber.echo}
