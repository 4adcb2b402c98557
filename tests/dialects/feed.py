"""Feeds a session as a connection does: what was not consumed comes again, with more behind it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from polycast.dialects.registry import ROLES
from polycast.dialects.session import RequestSession, Session, SessionContext
from polycast.model import (
    Abort,
    Ack,
    Block,
    Body,
    Burst,
    Closing,
    Commit,
    DeferredReply,
    Event,
    Format,
    Limits,
    PublishBatch,
    PublishMessage,
    Received,
    Refused,
    Reply,
    Request,
    RouteResponse,
    Stage,
    StartPosition,
    Subscribe,
    Unsubscribe,
    Upgrade,
)
from polycast.server.settings import TABLES
from vectors import Row

NOW = 1_700_000_000.5


class Feeder:
    """`patient` holds bytes back until a frame has the length that the session announced."""

    def __init__(self, session: Session, patient: bool = False) -> None:
        self.session = session
        self._patient = patient
        self._need = 0
        self._until = b""
        self.events: list[Event] = []
        self.buffered: Block = b""
        self.longest_buffer = 0

    @property
    def closed(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Closing)

    def give(self, part: bytes) -> None:
        if self.closed:
            return
        self.buffered += part
        come = self._until and self._until in part
        if self._patient and len(self.buffered) < self._need and not come:
            return
        received = self.session.receive(self.buffered, NOW)
        assert 0 <= received.consumed <= len(self.buffered)
        self.buffered = self.buffered[received.consumed :]
        self._need, self._until = received.frame_bytes, received.frame_end
        assert self._need == 0 or self._need > len(self.buffered), "it waits for bytes that are there"
        self.events += received.events
        self.longest_buffer = max(self.longest_buffer, len(self.buffered))
        for event in received.events:
            if isinstance(event, Upgrade):
                self.session = event.session
            if isinstance(event, Request | PublishMessage) and getattr(self.session, "one_request", False):
                self._respond(event.handle)

    def _respond(self, handle: Any) -> None:
        """Responds like the broker; then the session reads on."""
        assert isinstance(self.session, RequestSession)
        assert self.session.receive(self.buffered, NOW) == Received([], 0), "it reads on before the response"
        self.events.append(Reply(self.session.to_response(handle, True, Body(b"{}", Format.JSON))))
        self.give(b"")

    def end(self) -> None:
        """The peer says no more."""
        if not self.closed:
            self.events += self.session.end(self.buffered, NOW)

    def closing_bytes(self) -> bytes:
        last = self.events[-1]
        assert isinstance(last, Closing) and last.error
        return self.session.closing_bytes(last.error)


def feed(
    role: str,
    limits: Limits,
    parts: Iterable[bytes],
    patient: bool = False,
    settings: dict[str, Any] | None = None,
    has_log: bool = False,
) -> Feeder:
    """`settings` are those of the role's dialect; `has_log`: there is a log."""
    dialect = ROLES[role].dialect
    tables = {dialect: TABLES[dialect](**settings)} if settings else {}
    context = SessionContext(limits, tables=tables, has_log=has_log)
    feeder = Feeder(ROLES[role].session(context), patient)
    for part in parts:
        feeder.give(part)
    return feeder


def number(bursts: Iterable[Burst]) -> None:
    """Gives every message the next sequence of its topic, as the hub does."""
    following: dict[bytes, int] = {}
    for burst in bursts:
        for run, first, last in burst.runs():
            topic = burst.topics[run]
            burst.sequences.append(following.get(topic, 0))
            following[topic] = burst.sequences[run] + last - first


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def in_two(data: bytes, cut: int) -> tuple[bytes, bytes]:
    return data[:cut], data[cut:]


def rows(events: Iterable[Event], dialect: str) -> list[Row]:
    """Events as the vectors write them: message by message, however they came in bursts."""
    found: list[Row] = []
    for event in events:
        if isinstance(event, Upgrade):
            dialect = event.dialect
        found += _rows_of(event, dialect)
    return found


def merged(found: Iterable[Row]) -> list[Row]:
    """As if messages that came one after the other had come at once, with one reply.

    How much of the input comes in one block decides which messages are in one burst, and what is replied to a
    burst comes behind it.
    """
    rows: list[Row] = []
    for _, group in groupby(found, lambda row: row[0] in ("message", "reply")):
        stretch = list(group)
        rows += [row for row in stretch if row[0] != "reply"]
        if replies := [bytes(row[1]) for row in stretch if row[0] == "reply" and isinstance(row[1], bytes)]:
            rows.append(("reply", b"".join(replies)))
    return rows


Other = (
    Subscribe | Unsubscribe | Reply | Ack | DeferredReply | Refused | Request | RouteResponse | Upgrade | Closing
)


def _rows_of(event: Event, dialect: str) -> list[Row]:
    if isinstance(event, Burst):
        assert event.dialect == dialect
        return burst_rows(event)
    if isinstance(event, PublishBatch):
        reply = event.to_ack(len(event.burst))
        return [("once", event.batch.batch_id.encode()), *_rows_of(event.burst, dialect), ("reply", reply)]
    if isinstance(event, PublishMessage):
        return _rows_of(event.burst, dialect)
    if isinstance(event, Stage | Commit | Abort):
        return _rows_of_staged(event)
    return _rows_of_other(event, dialect)


def _rows_of_staged(event: Stage | Commit | Abort) -> list[Row]:
    match event:
        case Stage(batch, name, data, sha1, before):
            return [("stage", *_texts(batch.batch_id, name), data, *_texts(sha1, before))]
        case Commit(batch, names, count):
            return [("commit", *_texts(batch.batch_id, *names, count))]
        case Abort(batch, names, reply):
            return [("abort", *_texts(batch.batch_id, *(names or ()))), ("reply", reply)]


def _texts(*values: object) -> list[bytes]:
    return [str(value).encode() for value in values]


def _rows_of_other(event: Other, dialect: str) -> list[Row]:
    match event:
        case Subscribe(pattern, encoder, serve, start):
            assert encoder.name == dialect
            return [("subscribe", str(pattern).encode(), *([b"serve"] if serve else []), *_start_fields(start))]
        case Unsubscribe(pattern):
            return [("unsubscribe", str(pattern).encode())]
        case Reply(data) | Ack(data):
            return [("reply", data)]
        case DeferredReply(encode):
            data = encode()
            return [("reply", data)] if data else []
        case Refused(reason, count, _):
            return [("refused", reason.encode())] * count
        case Request(route, _, body):
            return [("request", route.encode(), body.payload, body.format.encode())]
        case RouteResponse(number, success, body):
            kind = "success" if success else "fail"
            return [(kind, str(number).encode(), body.payload, body.format.encode())]
        case Upgrade(dialect, _):
            return [("upgrade", dialect.encode())]
        case Closing(error):
            return [("closed", error.kind.encode() if error else b"")]


def _start_fields(start: StartPosition | None) -> list[bytes]:
    if start is None:
        return []
    if start.sequence is not None:
        return [b"sequence %d" % start.sequence]
    if start.offset is not None:
        return [b"@%d" % start.offset]
    return [b"earliest" if start.seconds is None else b"time %r" % start.seconds]


def bursts(events: Iterable[Event]) -> list[Burst]:
    """All that was published, in whatever way."""
    found = [event.burst if isinstance(event, PublishBatch) else event for event in events]
    return [event for event in found if isinstance(event, Burst)]


def burst_rows(burst: Burst) -> list[Row]:
    """The hub refuses topics that are not UTF-8; no session has to."""
    found: list[Row] = []
    for run, first, last in burst.runs():
        topic, format_ = burst.topics[run], burst.formats[run]
        for start, end in zip(burst.starts[first:last], burst.ends[first:last], strict=True):
            payload = bytes(burst.block[start:end])
            row: Row = ("message", topic, payload)
            row += () if format_ is Format.BYTES else (format_.encode(),)
            found.append(row if _is_utf8(topic) else ("refused", b"topic not UTF-8"))
    return found


def _is_utf8(topic: bytes) -> bool:
    return topic.decode(errors="replace").encode() == topic
