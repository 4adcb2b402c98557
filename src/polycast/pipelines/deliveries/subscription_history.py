"""Reconstructs subscriptions over time from the broker's events in the log.

A subscription is active from its `subscribe` event to the first of: an `unsubscribe` of the same connection and
pattern, a `disconnect` of the connection, a `start` or `stop` of the broker; in a cluster, of the node that the
connection is at.

Unknown are subscriptions from before the first event in the log, and all subscriptions if the broker runs with
`events.enabled=false`. From the first `start` event on the history is complete; `known_from` is its offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from polycast.dialects.registry import ROLES
from polycast.log.read.catalog import LogCatalog
from polycast.log.read.query import Condition, RowFilter, query_rows, to_ranges
from polycast.model import RESERVED_PREFIX, Contains, Everything, Exact, Pattern, Prefix

EVENTS = RESERVED_PREFIX + "events/"
BROKER = "polycast"
"""The source of the broker's own messages, in a cluster with @NODE behind it; no connection can use it."""
EVENTS_WANTED = RowFilter((Prefix(EVENTS),), (Condition("source", "starts", BROKER),))
COLUMNS = ("offset", "topic", "time", "payload", "source")
FOREVER = 2**63 - 1
KINDS: dict[str, type[Pattern]] = {kind.__name__.lower(): kind for kind in (Exact, Prefix, Contains, Everything)}


class BrokerEvent(msgspec.Struct, frozen=True):
    connection: str = ""
    dialect: str = ""
    listener: str = ""
    address: str = ""
    pattern: str = ""
    kind: str = ""
    value: str = ""
    echo: bool = True
    start: Any = msgspec.field(name="from", default=None)
    count: int = 0
    first: int = 0
    next: int = 0

    @property
    def key(self) -> str:
        """Identifies a pattern; its text form is ambiguous."""
        return f"{self.kind} {self.value}"


class LoggedEvent(NamedTuple):
    offset: int
    micros: int
    name: str
    """The event's name: the last part of its topic."""
    event: BrokerEvent
    node: str = ""


class Subscription(msgspec.Struct, frozen=True):
    connection: str
    dialect: str
    listener: str
    address: str
    pattern: str
    kind: str
    value: str
    echo: bool
    since: int
    """The offset of the event that started the subscription."""
    since_micros: int
    start: Any = None
    """Start position of a replay, as in hermod; None: live only."""
    until: int = FOREVER
    """The offset of the event that ended the subscription."""

    def to_pattern(self) -> Pattern:
        return KINDS[self.kind](self.value)

    @property
    def link(self) -> bool:
        return is_link(self.listener)


class SubscriptionHistory(msgspec.Struct):
    """Active subscriptions, and those that ended. The field names are part of the format of the state file."""

    next: int = 0
    """Events before this offset have been applied."""
    known_from: int | None = None
    open: dict[str, dict[str, Subscription]] = msgspec.field(default_factory=dict)
    """By connection, then by the kind and value of the pattern."""
    ended: list[Subscription] = msgspec.field(default_factory=list)
    links: dict[str, bool] = msgspec.field(default_factory=dict)
    """Connections to other brokers, and whether they are still open."""

    def take(self, logged: LoggedEvent) -> None:
        match logged.name:
            case "start" | "stop":
                self.known_from = logged.offset if self.known_from is None else self.known_from
                for connection in {*self.open, *self.links}:
                    if not logged.node or connection.startswith(f"{logged.node}#"):
                        self._end_all(connection, logged.offset)
            case "connect" if is_link(logged.event.listener):
                self.links[logged.event.connection] = True
            case "disconnect":
                self._end_all(logged.event.connection, logged.offset)
            case "unsubscribe":
                found = self.open.get(logged.event.connection, {}).pop(logged.event.key, None)
                self._end(found, logged.offset)
            case "subscribe" if logged.event.kind in KINDS:
                theirs = self.open.setdefault(logged.event.connection, {})
                theirs.setdefault(logged.event.key, to_subscription(logged))
        self.next = max(self.next, logged.offset + 1)

    def all(self) -> list[Subscription]:
        return self.ended + [each for theirs in self.open.values() for each in theirs.values()]

    def forget_ended(self) -> None:
        self.ended.clear()
        self.links = {name: still for name, still in self.links.items() if still}

    def _end_all(self, connection: str, offset: int) -> None:
        if connection in self.links:
            self.links[connection] = False
        for each in self.open.pop(connection, {}).values():
            self._end(each, offset)

    def _end(self, found: Subscription | None, offset: int) -> None:
        if found:
            self.ended.append(msgspec.structs.replace(found, until=offset))


def is_link(listener: str) -> bool:
    """Whether a listener accepts links from other brokers."""
    return listener in ROLES and ROLES[listener].link


def to_subscription(logged: LoggedEvent) -> Subscription:
    event = logged.event
    return Subscription(
        event.connection, event.dialect, event.listener, event.address, event.pattern, event.kind, event.value,
        event.echo, logged.offset, logged.micros, event.start,
    )  # fmt: skip


# -- reading ---------------------------------------------------------------------------------------------


def read_events(folder: Path, start: int, stop: int) -> Iterator[LoggedEvent]:
    """In order of offset. Skips row groups of sealed segments that have no events."""
    with closing(LogCatalog(folder)) as catalog:
        ranges = to_ranges(catalog.parts(start, stop), EVENTS_WANTED, start, stop)
    for batch in query_rows(folder, ranges, EVENTS_WANTED, COLUMNS):
        yield from to_events(batch)


def to_events(batch: pa.RecordBatch) -> Iterator[LoggedEvent]:
    """Skips messages that are not valid events."""
    columns = [batch["offset"], batch["topic"], batch["time"].cast(pa.int64()), batch["payload"], batch["source"]]
    for offset, topic, micros, payload, source in zip(*(column.to_pylist() for column in columns), strict=True):
        broker, _, node = source.partition("@")
        if broker != BROKER:
            continue
        try:
            event = DECODER.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        yield LoggedEvent(offset, micros, topic.removeprefix(EVENTS), event, node)


DECODER = msgspec.json.Decoder(BrokerEvent)
