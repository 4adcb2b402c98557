"""Scans: the leaves that find frames in a block, message by message, so that nothing else has to.

`pubs` reads the frames of `simplest`, `lines` those of a `fanout` controller, as long as they are in plain form:

    pub SP name SP length SP data LF
    channel SP message LF

and stops at the first byte that is anything else. They judge nothing: what they do not know, the session looks
at. That keeps the C version (`_scan.pyx`) to one loop each, 20 to 60 ns a frame where Python takes 400
or more. A test holds the two equal.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

from polycast.model import Block

LF = 10

Scan = tuple[list[bytes], list[int], Sequence[int], Sequence[int], Sequence[int], int, int, bool]
"""topics, run_ends, starts, ends, bounds, position, need, unfinished.

`position` is where the scan stopped, `unfinished` whether more bytes could make a plain frame of what is there,
and `need` how long that frame will be, where that is known already."""

PUB = re.compile(rb"pub ([^ \r\n]+) (0|[1-9][0-9]{0,9}) ")
PUB_BEGUN = re.compile(rb"(?:p(?:u(?:b(?: (?:([^ \r\n]+)(?: [0-9]{0,10})?)?)?)?)?)?")
LINE = re.compile(rb"([^ !\r\n]+) ([^\n]*)\n")


class Columns:
    """The columns of a scan while they grow."""

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.run_ends: list[int] = []
        self.starts, self.ends, self.bounds = array("q"), array("q"), array("q")

    def add(self, topic: bytes, bound: int, start: int, end: int) -> None:
        self.bounds.append(bound)
        self.starts.append(start)
        self.ends.append(end)
        self._end_run(topic)

    def add_alike(self, topic: bytes, bounds: range, header: int, payload: int) -> None:
        """Frames that begin at `bounds`, all with headers and payloads of these sizes."""
        self.bounds.extend(bounds)
        self.starts.extend([bound + header for bound in bounds])
        self.ends.extend([bound + header + payload for bound in bounds])
        self._end_run(topic)

    def _end_run(self, topic: bytes) -> None:
        if not self.topics or self.topics[-1] != topic:
            self.topics.append(topic)
            self.run_ends.append(0)
        self.run_ends[-1] = len(self.starts)

    def close(self, position: int, need: int, unfinished: bool) -> Scan:
        self.bounds.append(position)
        return (
            self.topics, self.run_ends, self.starts, self.ends, self.bounds, position, need, unfinished,
        )  # fmt: skip


def pubs_in_python(block: Block, position: int, topic_limit: int, payload_limit: int) -> Scan:
    columns = Columns()
    while match := PUB.match(block, position):
        header, topic, length = match[0], match[1], int(match[2])
        if length > payload_limit or len(topic) > topic_limit:
            return columns.close(position, 0, False)
        frame = len(header) + length + 1
        after = _after_alike(block, position, header, frame)
        if after == position:
            need = frame if position + frame > len(block) else 0
            return columns.close(position, need, need > 0)
        start = position + len(header)
        if after == position + frame:
            columns.add(topic, position, start, start + length)
        else:
            columns.add_alike(topic, range(position, after, frame), len(header), length)
        position = after
    return columns.close(position, 0, _pub_has_begun(block, position, topic_limit))


def _after_alike(block: Block, position: int, header: bytes, frame: int) -> int:
    """The position after all whole frames that have this very header."""
    last = len(block) - frame
    while position <= last and block.startswith(header, position) and block[position + frame - 1] == LF:
        position += frame
    return position


def _pub_has_begun(block: Block, position: int, topic_limit: int) -> bool:
    begun = PUB_BEGUN.fullmatch(block, position)
    return begun is not None and len(begun[1] or b"") <= topic_limit


def lines_in_python(block: Block, position: int, topic_limit: int, line_limit: int, payload_limit: int) -> Scan:
    columns = Columns()
    while match := LINE.match(block, position):
        (begin, space), (start, end) = match.span(1), match.span(2)
        too_long = space - begin > topic_limit or end - begin > line_limit or end - start > payload_limit
        if too_long or block[end - 1] == ord("\r"):
            return columns.close(position, 0, False)
        columns.add(match[1], position, start, end)
        position = match.end()
    unfinished = block.find(b"\n", position) < 0 and len(block) - position <= line_limit
    return columns.close(position, 0, unfinished)


try:
    from polycast.dialects import _scan
except ImportError:
    COMPILED = False
    lines, pubs = lines_in_python, pubs_in_python
else:
    COMPILED = True
    lines, pubs = _scan.lines, _scan.pubs
