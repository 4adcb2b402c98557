"""The scan of UBRE's publications in plain form: those that we would send on with the very same bytes.

    {"publish":"topic","body":"text"}
    {"publish":"topic","body":any other JSON}

with no white space between the parts and no escapes in topic or text: what `JSON.stringify` makes of most of
them. They become columns of the block that they came in. Whatever else there is, the session looks at.
"""

from __future__ import annotations

from array import array

import msgspec
from msgspec import Raw

from polycast.dialects.base import Reading
from polycast.dialects.ubre.messages import BLANKS, INVALID, compact
from polycast.model import Block, Burst, Form, Format, Limits

OPENING = b'{"publish":"'
MIDDLE = b'","body":'
CLOSING = ord("}")
QUOTE = ord('"')

_check_string = msgspec.json.Decoder(str).decode
_check_value = msgspec.json.Decoder(Raw).decode


class Publications:
    def __init__(self, dialect: str, native: Form, block: Block, limits: Limits) -> None:
        self._dialect = dialect
        self._native = native
        self._block = block
        self._limits = limits
        self._head = b""
        """What the last one began with; the next is probably like it."""
        self._topic = b""
        self._begin()

    def _begin(self) -> None:
        self._topics: list[bytes] = []
        self._formats: list[Format] = []
        self._run_ends: list[int] = []
        self._starts, self._ends, self._bounds = array("q"), array("q"), array("q")
        self._run: tuple[bytes, Format | None] = (b"", None)
        """The topic and the format of the run that is growing."""

    def take(self, bound: int, start: int, end: int) -> bool:
        """Takes the message between `start` and `end`, in the frame that begins at `bound`, if it is plain."""
        block = self._block
        head = self._head
        if not head or not block.startswith(head, start):
            head = self._read_head(start, end)
        if not head or block[end - 1] != CLOSING:
            return False
        begin, stop = start + len(head), end - 1
        format_ = _plain_format(block[begin:stop])
        if format_ is Format.TEXT:
            begin, stop = begin + 1, stop - 1
        if format_ is None or stop - begin > self._limits.payload_bytes:
            return False
        topic, format_before = self._run
        if format_ is not format_before or self._topic is not topic:
            self._begin_run(format_)
        self._bounds.append(bound)
        self._starts.append(begin)
        self._ends.append(stop)
        return True

    def close(self, bound: int, reading: Reading) -> None:
        """What has been taken is a burst; the frame of the last one ends at `bound`."""
        if not self._topics:
            return
        self._run_ends.append(len(self._starts))
        self._bounds.append(bound)
        burst = Burst(
            self._dialect, self._block, self._starts, self._ends, self._topics, self._formats, self._run_ends,
            self._bounds, self._native,
        )  # fmt: skip
        reading.add(burst)
        self._begin()

    def _begin_run(self, format_: Format) -> None:
        if self._topics:
            self._run_ends.append(len(self._starts))
        self._topics.append(self._topic)
        self._formats.append(format_)
        self._run = self._topic, format_

    def _read_head(self, start: int, end: int) -> bytes:
        """All before the body, if it is plain; nothing otherwise."""
        block = self._block
        begin = start + len(OPENING)
        quote = block.find(b'"', begin, end)
        if quote < 0 or not block.startswith(OPENING, start) or not block.startswith(MIDDLE, quote, end):
            return b""
        topic = bytes(block[begin:quote])
        if len(topic) > self._limits.topic_bytes or _plain_format(b'"%b"' % topic) is None:
            return b""
        self._topic = topic
        self._head = bytes(block[start : quote + len(MIDDLE)])
        return self._head


def _plain_format(value: Block) -> Format | None:
    """Of a JSON value that stands as we would write it; None for any other text."""
    try:
        if value[:1] == b'"':
            _check_string(value)
            return None if b"\\" in value else Format.TEXT
        if not value.isascii():
            value.decode()
        _check_value(value)
        blank = len(value.translate(None, BLANKS)) < len(value)
        return None if blank and compact(value) != value else Format.JSON
    except INVALID:
        return None
