"""The dialect `simplest` (spec "Simplest pubsub"): three commands in both directions, no greeting and no replies.

    pub SP name SP length SP data LF
    sub SP substring LF
    unsub SP substring LF

The length determines the end of the data, which may contain any byte; the LF is a trailer. A line with another
command is skipped and counted. After a malformed `pub` the start of the next frame is unknown, so the connection
is closed. The broker never replies: the peer would read a reply as a command.
"""

from __future__ import annotations

import re
from dataclasses import replace

from polycast.dialects.framing import SHORT_LINE_BYTES, Reading, ScanningSession, pass_through, read_line
from polycast.dialects.scan import Scan, pubs
from polycast.dialects.session import LinkSession, SessionContext
from polycast.errors import LimitError, ProtocolError
from polycast.model import (
    Block,
    Buffer,
    Burst,
    Contains,
    Encoded,
    Encoder,
    Event,
    Everything,
    Format,
    Pattern,
    Refused,
    Slices,
    Subscribe,
    Unsubscribe,
)

NAME = "simplest"
LENGTH_DIGITS = 10
PUB_COMMAND = re.compile(rb"pub(?:[ \r\n]|$)")
UNKNOWN_COMMANDS = re.compile(rb"(?:(?!pub[ \r\n]|(?:un)?sub[ \r\n])[^\n]{0,%d}\n)++" % (SHORT_LINE_BYTES - 1))
UNKNOWN = "unknown command"
HEADER_PREFIX = re.compile(rb"pub(?: (?:[^ \r\n]+(?: (?:[0-9]{1,10}\r?)?)?)?)?")
HEADER = re.compile(rb"pub ([^ \r\n]+) ([0-9]{1,10})( |(?=\r?\n))")
SPACES = {ord(" "): "%20", ord("\r"): "%0D", ord("\n"): "%0A"}


def to_name(topic: str) -> bytes:
    """A topic as a name: white space is escaped, and the empty topic is `%`."""
    return topic.translate(SPACES).encode() or b"%"


class SimplestEncoder(Encoder):
    name = NAME

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if burst.native is self:
            return pass_through(burst, slices)
        view = memoryview(burst.block)
        pieces: list[Buffer] = []
        for run, first, last in burst.runs(slices):
            name = to_name(burst.topics[run].decode())
            for i in range(first, last):
                begin, end = burst.starts[i], burst.ends[i]
                pieces += (b"pub %b %d " % (name, end - begin), view[begin:end], b"\n")
        joined = b"".join(pieces)
        return Encoded([joined], len(joined))


ENCODER = SimplestEncoder()


class SimplestSession(ScanningSession, LinkSession):
    dialect = NAME
    native = ENCODER

    def scan(self, block: Block, position: int) -> Scan:
        return pubs(block, position, self._limits.topic_bytes, self._limits.payload_bytes)

    def read_odd(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int]:
        if PUB_COMMAND.match(block, position):
            return self._read_pub(block, position, reading)
        if self._limits.line_bytes >= SHORT_LINE_BYTES:
            after = reading.refuse_lines(UNKNOWN_COMMANDS, block, position, UNKNOWN)
            if after > position:
                return after, 0
        line, after = read_line(block, position, self._limits.line_bytes)
        if after > position:
            reading.add(self._handle_line(line))
        return after, 0

    def _read_pub(self, block: Block, position: int, reading: Reading) -> tuple[int, int]:
        match = HEADER.match(block, position)
        if match is None:
            self._check_header(block, position)
            return position, 0
        start, length = match.end(), int(match[2])
        if len(match[1]) > self._limits.topic_bytes:
            raise LimitError("a topic", len(match[1]), self._limits.topic_bytes, "limits.topic_bytes")
        if length > self._limits.payload_bytes:
            raise LimitError("a payload", length, self._limits.payload_bytes, "limits.payload_bytes")
        if length and not match[3]:
            raise ProtocolError("a pub needs one space between its length and its data")
        end = start + length
        after = _after_line_end(block, end)
        if not after:
            return position, max(end, len(block)) + 1 - position
        reading.add_message(match[1], bytes(block[start:end]), Format.BYTES)
        return after, 0

    def begun_topic(self, head: bytes) -> bytes | None:
        """None for the reserved names of a mesh, whose rights depend on the original topic."""
        match = HEADER.match(head)
        return match[1] if match and not match[1].startswith(b"//") else None

    def _check_header(self, block: Block, position: int) -> None:
        """Raises unless the bytes are the start of a header."""
        longest = 4 + self._limits.topic_bytes + 1 + LENGTH_DIGITS + len("\r\n")
        head = bytes(block[position : position + longest + 1])
        if len(head) > longest or not HEADER_PREFIX.fullmatch(head):
            name = re.match(rb"pub ([^ \r\n]*)", head)
            if name and len(name[1]) > self._limits.topic_bytes:
                raise LimitError("a topic", len(name[1]), self._limits.topic_bytes, "limits.topic_bytes")
            raise ProtocolError(
                f"cannot read {head[:60]!r}; a pub is 'pub NAME LENGTH DATA' with one space each and a "
                f"length of 1 to {LENGTH_DIGITS} digits"
            )

    def _handle_line(self, line: bytes) -> Event:
        command, _, rest = line.partition(b" ")
        if command not in (b"sub", b"unsub"):
            return Refused(UNKNOWN)
        if len(rest) > self._limits.topic_bytes:
            return Refused("subscription longer than any topic")
        try:
            text = rest.decode()
        except UnicodeDecodeError:
            return Refused("subscription not UTF-8")
        pattern: Pattern = Contains(text) if text else Everything()
        return Subscribe(pattern, ENCODER) if command == b"sub" else Unsubscribe(pattern)

    def to_subscribe(self, text: str) -> bytes:
        return b"sub %b\n" % text.encode()

    def to_unsubscribe(self, text: str) -> bytes:
        return b"unsub %b\n" % text.encode()


def _after_line_end(block: Block, position: int) -> int:
    """The position after LF or CRLF; 0: unfinished."""
    trailer = block[position : position + 2]
    if trailer[:1] == b"\n":
        return position + 1
    if trailer == b"\r\n":
        return position + 2
    if trailer in (b"", b"\r"):
        return 0
    raise ProtocolError(
        f"{bytes(trailer[:1])!r} instead of the LF after the data: the length does not match the data"
    )


class PeerSession(SimplestSession):
    """The peer is a broker: its names may be longer than topics, by escapes and by `//fwd/`."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._limits = replace(self._limits, topic_bytes=3 * self._limits.topic_bytes + len("//fwd/"))
