"""What one block brings in `hermod`: messages in columns, and what is answered to them.

Most publishers write their headers with the same few bytes again and again. Those are read with one pattern, and
all others as the JSON that they are. `scan_plain` judges nothing: what it does not know, the session looks at.
"""

from __future__ import annotations

import re
from binascii import hexlify
from hashlib import sha1

from polycast.dialects.hermod.forms import NAME
from polycast.model import Block, Burst, Closing, Event, Format, Limits, Received, Reply

TOKENS = (
    rb"",
    rb"\{",
    *(rb'"topic"', rb":", rb'"([ !#-\[\]-~]*+)"', rb","),
    *(rb'"payload_size"', rb":", rb"(0|[1-9][0-9]{0,9})", rb","),
    *(rb'"checksum"', rb":", rb'"([0-9a-f]{40}|)"'),
    rb"\}",
)
PLAIN = re.compile(rb"[ \t\r\n]*+".join(TOKENS))


class Columns:
    """The messages of a block while they are found."""

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.run_ends: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.digests: list[bytes] = []
        """Empty where nobody has looked."""

    def add(self, topic: bytes, start: int, end: int, digest: bytes) -> None:
        if not self.topics or self.topics[-1] != topic:
            self.topics.append(topic)
            self.run_ends.append(len(self.starts))
        self.run_ends[-1] += 1
        self.starts.append(start)
        self.ends.append(end)
        self.digests.append(digest)

    def to_burst(self, dialect: str, block: Block) -> Burst:
        formats = [Format.BYTES] * len(self.topics)
        digests = self.digests if all(self.digests) else None
        return Burst(
            dialect, block, self.starts, self.ends, self.topics, formats, self.run_ends, digests=digests
        )  # fmt: skip


def scan_plain(
    block: Block, position: int, columns: Columns, most: int, limits: Limits, unchecked: bool
) -> tuple[int, int]:
    """Takes messages as long as their headers are in plain form, they are whole and their checksum fits.

    Returns the position after them, and how many they were. Everything else is judged by somebody else.
    """
    view, size = memoryview(block), len(block)
    topic_limit, payload_limit, header_limit = limits.topic_bytes, limits.payload_bytes, limits.line_bytes
    match_plain, add = PLAIN.match, columns.add
    count = 0
    while count < most and (match := match_plain(block, position)):
        topic, digits, checksum = match.groups()
        start = match.end()
        end = start + int(digits)
        if end > size or end - start > payload_limit or len(topic) > topic_limit:
            break
        if start - position > header_limit:
            break
        if checksum:
            if hexlify(sha1(view[start:end], usedforsecurity=False).digest()) != checksum:
                break
        elif not unchecked:
            break
        add(topic, start, end, checksum)
        position = end
        count += 1
    return position, count


class Intake:
    """What one block brings: messages gather in columns, what is answered to them comes behind them."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._replies: list[bytes] = []
        self._events: list[Event] = []
        self.columns = Columns()
        self.closed = False

    def reply(self, data: bytes) -> None:
        self._replies.append(data)

    def add(self, event: Event) -> None:
        self._end_burst()
        self._events.append(event)
        self.closed = isinstance(event, Closing)

    def close(self, consumed: int, need: int = 0) -> Received:
        self._end_burst()
        return Received(self._events, consumed, need)

    def _end_burst(self) -> None:
        if self.columns.topics:
            self._events.append(self.columns.to_burst(NAME, self._block))
            self.columns = Columns()
        if self._replies:
            self._events.append(Reply(b"".join(self._replies)))
            self._replies = []
