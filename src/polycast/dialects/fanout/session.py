"""The dialect `fanout` (fanout.js with hierarchical channels): lines; clients and controllers have a listener
each.

    client -> broker      subscribe SP channel LF      unsubscribe SP channel LF      time LF
    broker -> client      channel ! message LF         milliseconds LF
    controller -> broker  channel SP message LF

The broker sends nothing to a controller. All bytes after the first space are the message.
"""

from __future__ import annotations

import re

from polycast.dialects.framing import SHORT_LINE_BYTES, Reading, ReadingSession, ScanningSession, read_line
from polycast.dialects.scan import Scan, lines, mark_frames
from polycast.errors import LimitError
from polycast.model import (
    Block,
    Buffer,
    Burst,
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
from polycast.model.burst import edges_of

NAME = "fanout"
GREETING = b"debug!connected...\n"
LF, MARK = b"\n!"
BAD_LINES = re.compile(
    rb"(?:(?: |[^ !\n]{0,%d}(?=[!\n]))[^\n]{0,%d}\n)++" % (SHORT_LINE_BYTES // 2, SHORT_LINE_BYTES // 2 - 1)
)
"""Lines with an empty channel, with a `!` in the channel, or without a space."""
BAD_LINE = "not 'CHANNEL MESSAGE'"
BLANK_LINES = re.compile(rb"(?: {0,%d}\r?\n)++" % (SHORT_LINE_BYTES - 2))
UNKNOWN_COMMANDS = re.compile(
    rb"(?:(?! *+(?:time|subscribe|unsubscribe|\r?\n))[^\n]{0,%d}\n)++" % (SHORT_LINE_BYTES - 1)
)
UNKNOWN = "unknown command"
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
    marked = mark_frames(burst.block, burst.bounds, burst.starts, edges_of(slices), MARK)
    return Encoded([marked], len(marked))


ENCODER = FanoutEncoder()


def to_pattern(channel: str) -> Pattern:
    if channel == ">":
        return Everything()
    return Prefix(channel[:-1]) if channel.endswith(".>") else Exact(channel)


class SubscriberSession(ReadingSession):
    dialect = NAME

    def open(self) -> list[Event]:
        return [Reply(GREETING), Subscribe(Exact("all"), ENCODER)]

    def read(self, block: Block, now: float, reading: Reading) -> Received:
        position = 0
        while True:
            position = self._skip_lines(block, position, reading)
            line, after = read_line(block, position, self._limits.line_bytes)
            if after == position:
                return reading.close(position)
            for event in self._handle_line(line, now):
                reading.add(event)
            position = after

    def _skip_lines(self, block: Block, position: int, reading: Reading) -> int:
        if self._limits.line_bytes < SHORT_LINE_BYTES:
            return position
        if blank := BLANK_LINES.match(block, position):
            position = blank.end()
        return reading.refuse_lines(UNKNOWN_COMMANDS, block, position, UNKNOWN)

    def _handle_line(self, line: bytes, now: float) -> list[Event]:
        words = [word for word in line.split(b" ") if word]
        if words[:1] == [b"time"]:
            return [Reply(b"%d\n" % int(now * 1000))]
        if len(words) > 1 and words[0] in (b"subscribe", b"unsubscribe"):
            return [self._to_subscription(words[0], words[1])]
        return [Refused(UNKNOWN)] if words else []

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
        if self._limits.line_bytes >= SHORT_LINE_BYTES:
            after = reading.refuse_lines(BAD_LINES, block, position, BAD_LINE)
            if after > position:
                return after, 0
        line, after = read_line(block, position, self._limits.line_bytes)
        channel, space, message = line.partition(b" ")
        if after == position:
            return position, 0
        if not space or not channel or b"!" in channel:
            reading.add(Refused(BAD_LINE))
        elif len(channel) > self._limits.topic_bytes:
            raise LimitError("a channel", len(channel), self._limits.topic_bytes, "limits.topic_bytes")
        elif len(message) > self._limits.payload_bytes:
            raise LimitError("a message", len(message), self._limits.payload_bytes, "limits.payload_bytes")
        else:
            reading.add_message(channel, message, Format.BYTES)
        return after, 0
