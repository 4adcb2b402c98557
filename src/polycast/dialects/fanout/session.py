"""The dialect `fanout` (fanout.js with hierarchical channels): lines; clients and controllers have a listener
each.

    client -> broker      subscribe SP channel LF      unsubscribe SP channel LF      time LF
    broker -> client      channel ! message LF         milliseconds LF
    controller -> broker  channel SP message LF

The broker sends nothing to a controller. All bytes after the first space are the message.
"""

from __future__ import annotations

from polycast.dialects.framing import Reading, ScanningSession, read_line
from polycast.dialects.scan import Scan, lines
from polycast.dialects.session import Session
from polycast.errors import LimitError, PeerError
from polycast.model import (
    Block,
    Buffer,
    Burst,
    Closing,
    Encoded,
    Encoder,
    Event,
    Everything,
    Exact,
    Format,
    Pattern,
    Prefix,
    Received,
    Refused,
    Reply,
    Slices,
    Subscribe,
    Unsubscribe,
)

NAME = "fanout"
GREETING = b"debug!connected...\n"
LF, MARK = b"\n!"
ESCAPES = {ord(" "): "%20", ord("\r"): "%0D", ord("\n"): "%0A", ord("!"): "%21"}


def to_channel(topic: str) -> bytes:
    """A topic as a channel: white space and `!` are escaped."""
    return topic.translate(ESCAPES).encode()


class FanoutEncoder(Encoder):
    name = NAME

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if burst.native is self:
            return _with_marks(burst, slices)
        pieces: list[Buffer] = []
        lossy = 0
        for run, first, last in burst.runs(slices):
            head = to_channel(burst.topics[run].decode()) + b"!"
            for i in range(first, last):
                payload = burst.block[burst.starts[i] : burst.ends[i]]
                if LF in payload:
                    payload = payload.replace(b"\n", rb"\n")
                    lossy += 1
                pieces += (head, payload, b"\n")
        joined = b"".join(pieces)
        return Encoded([joined], len(joined), lossy)


def _with_marks(burst: Burst, slices: Slices) -> Encoded:
    """The plain lines of a controller differ from those for clients in one byte each."""
    bounds = burst.bounds
    out = bytearray()
    for start, stop in slices:
        shift = len(out) - bounds[start] - 1
        out += memoryview(burst.block)[bounds[start] : bounds[stop]]
        for begin in burst.starts[start:stop]:
            out[begin + shift] = MARK
    return Encoded([out], len(out))


ENCODER = FanoutEncoder()


def to_pattern(channel: str) -> Pattern:
    if channel == ">":
        return Everything()
    return Prefix(channel[:-1]) if channel.endswith(".>") else Exact(channel)


class SubscriberSession(Session):
    def open(self) -> list[Event]:
        return [Reply(GREETING), Subscribe(Exact("all"), ENCODER)]

    def receive(self, block: Block, now: float) -> Received:
        events: list[Event] = []
        position = 0
        try:
            if not self.first_line_checked:
                self.check_first_line(block)
            while True:
                line, after = read_line(block, position, self._limits.line_bytes)
                if after == position:
                    return Received(events, position)
                events += self._handle_line(line, now)
                position = after
        except PeerError as error:
            return Received([*events, Closing(error)], len(block))

    def _handle_line(self, line: bytes, now: float) -> list[Event]:
        words = [word for word in line.split(b" ") if word]
        if words[:1] == [b"time"]:
            return [Reply(b"%d\n" % int(now * 1000))]
        if len(words) > 1 and words[0] in (b"subscribe", b"unsubscribe"):
            return [self._to_subscription(words[0], words[1])]
        return [Refused("unknown command")] if words else []

    def _to_subscription(self, command: bytes, channel: bytes) -> Event:
        if len(channel) > self._limits.topic_bytes:
            return Refused("subscription longer than any topic")
        if b"!" in channel:
            return Refused("channel with '!'")
        try:
            pattern = to_pattern(channel.decode())
        except UnicodeDecodeError:
            return Refused("subscription not UTF-8")
        return Subscribe(pattern, ENCODER) if command == b"subscribe" else Unsubscribe(pattern)


class ControllerSession(ScanningSession):
    dialect = NAME
    native = ENCODER

    def scan(self, block: Block, position: int) -> Scan:
        limits = self._limits
        return lines(block, position, limits.topic_bytes, limits.line_bytes, limits.payload_bytes)

    def read_odd(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int]:
        """A line that is not plain: it ends in CRLF, or is no message, or is too long."""
        line, after = read_line(block, position, self._limits.line_bytes)
        channel, space, message = line.partition(b" ")
        if after == position:
            return position, 0
        if not space or not channel or b"!" in channel:
            reading.add(Refused("not 'CHANNEL MESSAGE'"))
        elif len(channel) > self._limits.topic_bytes:
            raise LimitError("a channel", len(channel), self._limits.topic_bytes, "limits.topic_bytes")
        elif len(message) > self._limits.payload_bytes:
            raise LimitError("a message", len(message), self._limits.payload_bytes, "limits.payload_bytes")
        else:
            reading.add_message(channel, message, Format.BYTES)
        return after, 0
