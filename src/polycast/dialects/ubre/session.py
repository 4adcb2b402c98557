"""The dialect `ubre`: pub/sub and requests, as JSON or binary, over WebSocket or on a plain stream.

    subscribe, unsubscribe      S, U     a topic; the body {"serve": true} offers to serve requests for it, and
                                         {"offsets": true} requests "offset", "sequence" and "time" in JSON
    publish                     P        a topic and a body
    request                     R        {"request": route, "id": id} or {"request": id, "body": {"route": ...}}
    success, fail               s, f     the id of the request, and the response

A WebSocket message is one message of UBRE: JSON in a text frame, binary in a binary frame. On a stream, a message
is a line of JSON or a binary frame; the first byte determines which.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from polycast.dialects.framing import Reading, ReadingSession
from polycast.dialects.json_bodies import BLANKS, to_string
from polycast.dialects.session import SessionContext
from polycast.dialects.ubre import scan
from polycast.dialects.ubre.base_session import UbreBaseSession, UbreTransport, message_limit
from polycast.dialects.ubre.encoders import (
    BINARY_FRAMES,
    BINARY_STREAM,
    JSON_FRAMES,
    JSON_LINES,
    NAME,
    OFFSET_FRAMES,
    OFFSET_LINES,
)
from polycast.dialects.ubre.messages import HEADER, KINDS, PUBLISH, STREAMING
from polycast.dialects.ubre.scan import Publications
from polycast.dialects.web import websocket
from polycast.dialects.web.websocket import Frames, WebSocketError, WebSocketSession
from polycast.errors import LimitError, PeerError
from polycast.model import Block, Burst, Closing, Encoder, Event, Received, Reply

BRACE = ord("{")


# -- over WebSocket ---------------------------------------------------------------------------------------


class UbreWebSocketSession(WebSocketSession, UbreBaseSession):
    dialect = NAME
    transport = UbreTransport(
        JSON_FRAMES,
        OFFSET_FRAMES,
        BINARY_FRAMES,
        partial(websocket.to_frame, websocket.TEXT),
        partial(websocket.to_frame, websocket.BINARY),
    )

    def __init__(self, context: SessionContext, publishes: Sequence[str] = ()) -> None:
        """The broker subscribes to the topics of `publishes`: the peer publishes only to subscribers."""
        super().__init__(context, message_limit(context.limits))
        self._publishes = publishes

    def open(self) -> list[Event]:
        topics = map(to_string, self._publishes)
        return [Reply(self.transport.to_json(b'{"subscribe":%b}' % topic)) for topic in topics]

    def read_messages(self, frames: Frames, now: float, reading: Reading) -> None:
        block, starts, ends, opcodes, _ = frames
        limits, position = self._limits, 0
        while True:
            position = add_publications(
                scan.framed(*frames, position, limits.topic_bytes, limits.payload_bytes), JSON_FRAMES, reading
            )
            if position == len(opcodes):
                return
            message = bytes(block[starts[position] : ends[position]])
            if opcodes[position] == websocket.TEXT:
                self.handle_json(message, reading)
            else:
                self._read_binary(message, reading)
            position += 1

    def _read_binary(self, message: bytes, reading: Reading) -> None:
        if len(message) < HEADER.size:
            raise broken(f"a binary message of {len(message)} bytes has no room for its header")
        kind, name_size, body_size = HEADER.unpack_from(message)
        check_kind(kind)
        start = HEADER.size + name_size
        size = len(message) - start
        if size < 0 or (body_size != STREAMING and body_size != size):
            lengths = f"a name of {name_size:,} and a body of {body_size:,} bytes"
            raise broken(f"{lengths} do not fit a binary message of {len(message):,}")
        self.check_name("a name", name_size)
        self.check_body(kind, size)
        self.handle_frame(kind, message[HEADER.size : start], message[start:] if body_size else None, reading)


# -- on a stream ------------------------------------------------------------------------------------------


class UbreSession(ReadingSession, UbreBaseSession):
    dialect = NAME
    transport = UbreTransport(JSON_LINES, OFFSET_LINES, BINARY_STREAM, lambda text: text + b"\n", bytes)

    def read(self, block: Block, now: float, reading: Reading) -> Received:
        position = 0
        while True:
            position = add_publications(self._scan(block, position), JSON_LINES, reading)
            after, need = self._read_odd(block, position, reading)
            if after == position:
                return reading.close(position, need, b"\n" if block.startswith(b"{", position) else b"")
            position = after

    def begun_topic(self, head: bytes) -> bytes | None:
        """The topic of a binary frame; in a line, the topic may be anywhere."""
        if len(head) < HEADER.size or head[0] != PUBLISH:
            return None
        _, size, _ = HEADER.unpack_from(head)
        name = head[HEADER.size : HEADER.size + size]
        return name if len(name) == size else None

    def _scan(self, block: Block, position: int) -> Publications:
        limits = self._limits
        return scan.lines(block, position, message_limit(limits), limits.topic_bytes, limits.payload_bytes)

    def end(self, rest: Block, now: float) -> list[Event]:
        """The last line may lack its LF, and a streamed body ends here."""
        reading = Reading(NAME)
        try:
            if rest[:1] == b"{":
                self.handle_json(bytes(rest), reading)
            elif len(rest) >= HEADER.size:
                self._end_stream(bytes(rest), reading)
        except PeerError as error:
            reading.add(Closing(error))
        return reading.close(len(rest)).events

    def _end_stream(self, rest: bytes, reading: Reading) -> None:
        kind, name_size, body_size = HEADER.unpack_from(rest)
        start = HEADER.size + name_size
        if body_size == STREAMING and len(rest) >= start:
            self.handle_frame(kind, rest[HEADER.size : start], rest[start:], reading)

    def _read_odd(self, block: Block, position: int, reading: Reading) -> tuple[int, int]:
        """The position after one message, or the same position and the length of the message."""
        while position < len(block) and block[position] in BLANKS:
            position += 1
        if position == len(block):
            return position, 0
        if block[position] == BRACE:
            return self._read_line(block, position, reading)
        return self._read_frame(block, position, reading)

    def _read_line(self, block: Block, position: int, reading: Reading) -> tuple[int, int]:
        limit = message_limit(self._limits)
        end = block.find(b"\n", position, position + limit + 1)
        if end < 0 and len(block) - position > limit:
            raise LimitError("a line", len(block) - position, limit, "limits.payload_bytes")
        if end < 0:
            return position, limit + 1
        self.handle_json(bytes(block[position:end]), reading)
        return end + 1, 0

    def _read_frame(self, block: Block, position: int, reading: Reading) -> tuple[int, int]:
        check_kind(block[position])
        name_at = position + HEADER.size
        if len(block) < name_at:
            return position, 0
        kind, name_size, body_size = HEADER.unpack_from(block, position)
        streams = body_size == STREAMING
        self.check_name("a name", name_size)
        self.check_body(kind, 0 if streams else body_size)
        start = name_at + name_size
        end = start + (self.body_limit(kind) + 1 if streams else body_size)
        if len(block) < end:
            return position, end - position
        self.check_body(kind, end - start)
        self.handle_frame(
            kind, bytes(block[name_at:start]), bytes(block[start:end]) if body_size else None, reading
        )
        return end, 0


def add_publications(found: Publications, native: Encoder, reading: Reading) -> int:
    """Adds the publications of a scan; returns where it stopped."""
    block, topics, formats, run_ends, starts, ends, bounds, position = found
    if topics:
        reading.add(Burst(NAME, block, starts, ends, topics, formats, run_ends, bounds, native))
    return position


def check_kind(kind: int) -> None:
    if kind not in KINDS:
        raise broken(f"a message of the unknown type {kind:#04x}; known are {KINDS.decode()} and {{")


def broken(message: str) -> WebSocketError:
    """The same error on a stream, which sends no close code."""
    return WebSocketError(websocket.BROKEN, message)
