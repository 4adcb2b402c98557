"""Server-sent events: the stream of a subscription over HTTP (`GET /events`).

    event: log
    data: {"log": ID, "next": OFFSET}         the first event: the log that the offsets belong to

    id: OFFSET
    data: {"offset": ..., "topic": ...}       a message, see `message_json`

    event: gap
    data: {"first": OFFSET, "next": OFFSET, "reason": TEXT}     messages that the log cannot deliver

    event: refused
    data: {"reason": TEXT}                    the last event, if the broker closes the stream

    : a comment, while there are no messages

The id of the first event is the offset before the subscription, unless the client names a start position: a client
that reconnects before its first message misses none. The response ends with the connection, so that one encoded
block serves every subscriber; chunks would have to be counted for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from polycast.dialects.session import Session, SessionContext
from polycast.dialects.web.message_json import to_objects
from polycast.errors import PeerError
from polycast.model import (
    Block,
    Burst,
    Encoded,
    Encoder,
    Event,
    Pattern,
    Received,
    Reply,
    Slices,
    StartPosition,
    Subscribe,
)

NAME = "http"
CONTENT_TYPE = "text/event-stream"
KEEP_ALIVE = b":\n\n"


class EventEncoder(Encoder):
    name = NAME

    def __init__(self, has_log: bool) -> None:
        self._has_log = has_log

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if self._has_log:
            events = [b"id: %d\ndata: %b\n\n" % found for found in to_objects(burst, slices)]
        else:
            events = [b"data: %b\n\n" % text for _, text in to_objects(burst, slices, has_log=False)]
        block = b"".join(events)
        return Encoded([block], len(block))


WITH_LOG, WITHOUT_LOG = EventEncoder(True), EventEncoder(False)


class EventStreamSession(Session):
    """A subscriber. It sends nothing after its request; anything else is ignored."""

    keep_alive = KEEP_ALIVE

    def __init__(
        self,
        context: SessionContext,
        patterns: Sequence[Pattern],
        start: StartPosition | None,
        committed: bool = True,
    ) -> None:
        """`committed`: messages are sent when they are durable, so that every id stays in the log."""
        super().__init__(context)
        self._context = context
        self._patterns = patterns
        self._start = start
        self._committed = committed and context.has_log

    def open(self) -> list[Event]:
        has_log = self._context.has_log
        encoder = WITH_LOG if has_log else WITHOUT_LOG
        subscriptions = [
            Subscribe(pattern, encoder, start=self._start, committed=self._committed) for pattern in self._patterns
        ]
        return [Reply(self._to_log_event()) if has_log else Reply(KEEP_ALIVE), *subscriptions]

    def receive(self, block: Block, now: float) -> Received:
        return Received([], len(block))

    def to_miss(self, first: int, after: int, cause: str) -> bytes:
        """The id is the last offset of the gap: a client that resumes there gets no second notice."""
        gap = {"first": first, "next": after, "reason": cause}
        return b"id: %d\n%b" % (after - 1, to_event("gap", gap))

    def closing_bytes(self, error: PeerError | None) -> bytes:
        return to_event("refused", {"reason": str(error)}) if error else b""

    def _to_log_event(self) -> bytes:
        after = self._context.log_next()
        event = to_event("log", {"log": self._context.log_id, "next": after})
        return event if self._start else b"id: %d\n%b" % (after - 1, event)


def to_event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
