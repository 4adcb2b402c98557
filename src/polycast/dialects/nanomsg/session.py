"""The dialect `nanomsg` (nn_pubsub; SP over TCP, IPC and WebSocket): PUB and SUB sockets of nanomsg and nng.

    both at once   00 'S' 'P' 00, type (2 bytes: PUB 0020, SUB 0021), 00 00
    tcp            PUB -> SUB   size (8 bytes, big-endian), body
    ipc            PUB -> SUB   01, size, body
    WebSocket      PUB -> SUB   one binary frame for each body; the sub-protocol is the listener's type

A SUB sends nothing after its header: it receives all messages and filters them. SP has no topics, so the first
separator divides a body: `foo|Hello!` is the topic `foo` with the payload `Hello!`. A body without a separator is
all payload, with the empty topic. Bodies are sent as they arrived.
"""

from __future__ import annotations

import sys
from operator import sub

from polycast.address import Address
from polycast.dialects.framing import Reading, ScanningSession
from polycast.dialects.nanomsg import headers
from polycast.dialects.nanomsg.encoders import NAME, encoder_of
from polycast.dialects.nanomsg.headers import PUB, SUB
from polycast.dialects.nanomsg.settings import NanomsgSettings
from polycast.dialects.scan import SIZE, TYPE, Scan, bodies, divided
from polycast.dialects.session import Session, SessionContext, narrowed
from polycast.dialects.web.handshake import ClientHandshake
from polycast.dialects.web.websocket import POLICY, TEXT, UNACCEPTABLE, Frames, WebSocketError, WebSocketSession
from polycast.errors import LimitError, PeerError, ProtocolError
from polycast.model import (
    Block,
    Burst,
    Closing,
    Encoder,
    Event,
    Everything,
    Format,
    Limits,
    Prefix,
    Received,
    Reply,
    Subscribe,
)

PROTOCOLS = {PUB: "pub.sp.nanomsg.org", SUB: "sub.sp.nanomsg.org"}
"""The sub-protocol of a WebSocket to a listener of this type."""
MOST = sys.maxsize // 2
"""The largest limit for a scan, so that its sums do not overflow."""


def settings_of(context: SessionContext) -> NanomsgSettings:
    found = context.tables.get(NAME)
    return found if isinstance(found, NanomsgSettings) else NanomsgSettings()


# -- tcp and ipc -----------------------------------------------------------------------------------------


class SpSession(ScanningSession):
    """The base of PUB and SUB sessions: both exchange headers first."""

    dialect = NAME
    handshake_done = False
    first_line_checked = True  # the SP header excludes HTTP and TLS
    own: int
    peer: int

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._settings = settings_of(context)
        self.native = encoder_of(context.scheme, self._settings.separator)

    def open(self) -> list[Event]:
        return [Reply(headers.to_header(self.own))]

    def scan(self, block: Block, position: int) -> Scan:
        return self.find_bodies(block, position) if self.handshake_done else _nothing(position)

    def read_odd(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int]:
        if self.handshake_done:
            if position < len(block):
                self.refuse(block, position)
            return position, 0
        head = bytes(block[position : position + headers.SIZE])
        headers.check_header(head, self.peer)
        if len(head) < headers.SIZE:
            return position, 0
        self.handshake_done = True
        return position + len(head), 0

    def find_bodies(self, block: Block, position: int) -> Scan:
        return _nothing(position)

    def refuse(self, block: Block, position: int) -> None:
        """Raises the error of a frame that is not plain."""
        raise NotImplementedError


def _nothing(position: int) -> Scan:
    return [], [], (), (), (position,), position, 0, False


class PubSession(SpSession):
    """The broker is the PUB, the peer a SUB.

    The subscription starts before the peer's header: once the peer has the broker's header, it misses no message.
    """

    own, peer = PUB, SUB

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._subscription = _subscription(context, self.native)

    def open(self) -> list[Event]:
        return [*super().open(), self._subscription]

    def refuse(self, block: Block, position: int) -> None:
        raise ProtocolError(_not_expected(len(block) - position))


class SubSession(SpSession):
    """The broker is the SUB, the peer a PUB."""

    own, peer = SUB, PUB

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._typed = context.scheme == "ipc"
        self._separator = ord(self._settings.separator)
        self._topic_limit = min(self._limits.topic_bytes, MOST)
        self._payload_limit = min(self._limits.payload_bytes, MOST)
        self._body_limit, self.limit_setting = _body_limit(self._limits, self._settings)

    def find_bodies(self, block: Block, position: int) -> Scan:
        return bodies(
            block, position, self._typed, self._separator, self._topic_limit, self._payload_limit, self._body_limit
        )  # fmt: skip

    def begun_topic(self, head: bytes) -> bytes | None:
        begin = self._typed + SIZE.size
        if head.find(self._separator, begin) < 0 and len(head) <= begin + self._topic_limit:
            return None
        [topic], _, _ = divided(head, [begin], [len(head)], self._separator, self._topic_limit)
        return topic

    def refuse(self, block: Block, position: int) -> None:
        if self._typed and block[position] != TYPE[0]:
            raise ProtocolError(f"{block[position]:02x} as the type of a message, which must be 01")
        [size] = SIZE.unpack_from(block, position + self._typed)
        if size > self._body_limit:
            raise LimitError("a message", size, self._body_limit, self.limit_setting)
        begin = position + self._typed + SIZE.size
        _, _, [start] = divided(block, [begin], [begin + size], self._separator, self._topic_limit)
        raise LimitError("a payload", begin + size - start, self._payload_limit, "limits.payload_bytes")


def _subscription(context: SessionContext, encoder: Encoder) -> Subscribe:
    prefix = context.options.get("prefix", "")
    return Subscribe(Prefix(prefix) if prefix else Everything(), encoder)


def _not_expected(size: int) -> str:
    return f"{size:,} bytes from a SUB socket, which must not send"


def _body_limit(limits: Limits, settings: NanomsgSettings) -> tuple[int, str]:
    """The longest body that can be a message, and the setting that raises it."""
    longest = limits.topic_bytes + 1 + limits.payload_bytes
    if settings.message_bytes <= longest:
        return min(settings.message_bytes, MOST), "nanomsg.message_bytes"
    return min(longest, MOST), "limits.payload_bytes"


# -- WebSocket -------------------------------------------------------------------------------------------


class NanomsgWebSocket(WebSocketSession):
    dialect = NAME

    def __init__(self, context: SessionContext) -> None:
        self._settings = settings_of(context)
        limit, self.limit_setting = _body_limit(context.limits, self._settings)
        super().__init__(context, limit)

    def read_messages(self, frames: Frames, now: float, reading: Reading) -> None:
        text = frames.opcodes.find(TEXT)
        good = frames if text < 0 else frames.first(text)
        if good.opcodes:
            self.read_bodies(good, reading)
        if text >= 0:
            raise WebSocketError(UNACCEPTABLE, "a text frame where only binary frames are messages")

    def read_bodies(self, frames: Frames, reading: Reading) -> None:
        raise NotImplementedError

    def closing_bytes(self, error: PeerError | None) -> bytes:
        """A close frame only for protocol errors: nanomsg never dials again after one, whatever its code."""
        return super().closing_bytes(error) if isinstance(error, WebSocketError | LimitError) else b""


class PubWebSocketSession(NanomsgWebSocket):
    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._subscription = _subscription(context, encoder_of("ws", self._settings.separator, self.client))

    def open(self) -> list[Event]:
        return [self._subscription]

    def read_bodies(self, frames: Frames, reading: Reading) -> None:
        raise WebSocketError(POLICY, _not_expected(sum(map(sub, frames.ends, frames.starts))))


class SubWebSocketSession(NanomsgWebSocket):
    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._separator = ord(self._settings.separator)
        self._native = encoder_of("ws", self._settings.separator)

    def read_bodies(self, frames: Frames, reading: Reading) -> None:
        limit, topic_limit = self._limits.payload_bytes, min(self._limits.topic_bytes, MOST)
        found = divided(frames.block, frames.starts, frames.ends, self._separator, topic_limit)
        topics, run_ends, starts = found
        formats = [Format.BYTES] * len(topics)
        burst = Burst(
            NAME, frames.block, starts, frames.ends, topics, formats, run_ends, frames.bounds, self._native
        )  # fmt: skip
        sizes = list(map(sub, frames.ends, starts))
        good = next((i for i, size in enumerate(sizes) if size > limit), len(sizes))
        if good:
            reading.add(burst if good == len(burst) else burst.cut(0, good))
        if good < len(burst):
            raise LimitError("a payload", sizes[good], limit, "limits.payload_bytes")


# -- WebSockets that the broker dials --------------------------------------------------------------------


class DialedSession(NanomsgWebSocket):
    """A WebSocket that the broker dials. The events of `open` come after the handshake."""

    client = True
    handshake_done = False
    listener: int

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        address = context.dialed or Address("ws")
        host = str(Address("tcp", address.host, address.port)).removeprefix("tcp://")
        self._handshake = ClientHandshake(host, address.path, PROTOCOLS[self.listener])

    def open(self) -> list[Event]:
        return [Reply(self._handshake.request)]

    def receive(self, block: Block, now: float) -> Received:
        if self.handshake_done:
            return super().receive(block, now)
        try:
            after = self._handshake.read(block)
        except PeerError as error:
            return Received([Closing(error)], len(block))
        if not after:
            return Received([], 0)
        self.handshake_done = True
        rest = super().receive(block[after:], now)
        opened = narrowed(self.guard, super().open())
        return Received([*opened, *rest.events], after + rest.consumed, rest.frame_bytes)

    def closing_bytes(self, error: PeerError | None) -> bytes:
        return super().closing_bytes(error) if self.handshake_done else b""


class DialedPubSession(DialedSession, PubWebSocketSession):
    listener = SUB


class DialedSubSession(DialedSession, SubWebSocketSession):
    listener = PUB


def to_pub(context: SessionContext) -> Session:
    return DialedPubSession(context) if context.scheme == "ws" else PubSession(context)


def to_sub(context: SessionContext) -> Session:
    return DialedSubSession(context) if context.scheme == "ws" else SubSession(context)
