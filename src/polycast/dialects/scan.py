"""Scans: find the plain frames in a block.

`pubs` reads the frames of `simplest`, `lines` those of a `fanout` controller, `bodies` those of a `nanomsg` PUB,
in their plain form:

    pub SP name SP length SP data LF
    channel SP message LF
    size, topic separator payload     the size of the rest as 8 bytes, a 01 before it if `typed`

`join_frames` and `mark_frames` go the other way: the frames of many slices in one piece, unchanged, or with the
byte before each payload replaced.

A scan stops at the first frame that is not plain; the session reads that one. `divided` finds the topics of
bodies in frames of another kind. The C version (`_scan.pyx`) is one loop for each scan and takes 20 to 60 ns a
frame; Python takes 400 or more. A test checks that both return the same.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from struct import Struct

from polycast.model import Block

LF = b"\n"

Scan = tuple[list[bytes], list[int], Sequence[int], Sequence[int], Sequence[int], int, int, bool]
"""topics, run_ends, starts, ends, bounds, position, need, unfinished.

`position` is where the scan stopped, `unfinished` whether more bytes could complete a plain frame there, and
`need` its length, or 0 if it is unknown."""

Divided = tuple[list[bytes], list[int], Sequence[int]]
"""topics, run_ends, starts: of bodies with known bounds."""

PUB = re.compile(rb"pub ([^ \r\n]+) (0|[1-9][0-9]{0,9}) ")
PUB_PREFIX = re.compile(rb"(?:p(?:u(?:b(?: (?:([^ \r\n]+)(?: [0-9]{0,10})?)?)?)?)?)?")
LINE = re.compile(rb"([^ !\r\n]+) ([^\n]*)\n")
TYPE = b"\x01"
SIZE = Struct(">Q")


class ScanColumns:
    """The columns of a scan."""

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
        """Frames that start at `bounds`, with headers and payloads of the same sizes."""
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
    columns = ScanColumns()
    while match := PUB.match(block, position):
        header, topic, length = match[0], match[1], int(match[2])
        if length > payload_limit or len(topic) > topic_limit:
            return columns.close(position, 0, False)
        frame = len(header) + length + 1
        after = _after_alike(block, position, header, frame, LF)
        if after == position:
            need = frame if position + frame > len(block) else 0
            return columns.close(position, need, need > 0)
        start = position + len(header)
        if after == position + frame:
            columns.add(topic, position, start, start + length)
        else:
            columns.add_alike(topic, range(position, after, frame), len(header), length)
        position = after
    return columns.close(position, 0, _is_pub_prefix(block, position, topic_limit))


def _after_alike(block: Block, position: int, head: bytes, frame: int, last: bytes = b"") -> int:
    """The position after all complete frames of this size with the same start and end."""
    while (
        position + frame <= len(block)
        and block.startswith(head, position)
        and block.startswith(last, position + frame - len(last))
    ):
        position += frame
    return position


def _is_pub_prefix(block: Block, position: int, topic_limit: int) -> bool:
    match = PUB_PREFIX.fullmatch(block, position)
    return match is not None and len(match[1] or b"") <= topic_limit


def lines_in_python(block: Block, position: int, topic_limit: int, line_limit: int, payload_limit: int) -> Scan:
    columns = ScanColumns()
    while match := LINE.match(block, position):
        (begin, space), (start, end) = match.span(1), match.span(2)
        too_long = space - begin > topic_limit or end - begin > line_limit or end - start > payload_limit
        if too_long or block[end - 1] == ord("\r"):
            return columns.close(position, 0, False)
        columns.add(match[1], position, start, end)
        position = match.end()
    unfinished = block.find(b"\n", position) < 0 and len(block) - position <= line_limit
    return columns.close(position, 0, unfinished)


def bodies_in_python(
    block: Block,
    position: int,
    typed: bool,
    separator: int,
    topic_limit: int,
    payload_limit: int,
    body_limit: int,
) -> Scan:
    columns = ScanColumns()
    head = SIZE.size + typed
    while len(block) - position >= head and (not typed or block[position] == TYPE[0]):
        [size] = SIZE.unpack_from(block, position + typed)
        body = position + head
        if size > body_limit:
            return columns.close(position, 0, False)
        if size > len(block) - body:
            return columns.close(position, head + size, True)
        topic, start = _topic_of(block, body, body + size, separator, topic_limit)
        if body + size - start > payload_limit:
            return columns.close(position, 0, False)
        prefix = bytes(block[position:start])
        frame = head + size
        after = _after_alike(block, position + frame, prefix, frame) if topic else position + frame
        columns.add_alike(topic, range(position, after, frame), len(prefix), body + size - start)
        position = after
    return columns.close(position, 0, position == len(block) or not typed or block[position] == TYPE[0])


def divided_in_python(
    block: Block, starts: Sequence[int], ends: Sequence[int], separator: int, topic_limit: int
) -> Divided:
    columns = ScanColumns()
    for begin, end in zip(starts, ends, strict=True):
        topic, start = _topic_of(block, begin, end, separator, topic_limit)
        columns.add(topic, begin, start, end)
    return columns.topics, columns.run_ends, columns.starts


def _topic_of(block: Block, begin: int, end: int, separator: int, topic_limit: int) -> tuple[bytes, int]:
    """The topic at the start of a body, and the start of the payload; without a topic, all is payload."""
    at = block.find(separator, begin, min(end, begin + topic_limit + 1))
    topic = bytes(block[begin : max(at, begin)])
    try:
        topic.decode()
    except UnicodeDecodeError:
        topic = b""
    return (topic, at + 1) if topic else (b"", begin)


def join_frames_in_python(block: Block, bounds: Sequence[int], edges: Sequence[int]) -> bytes:
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return b"".join([block[bounds[start] : bounds[stop]] for start, stop in pairs])


def mark_frames_in_python(
    block: Block, bounds: Sequence[int], starts: Sequence[int], edges: Sequence[int], mark: int
) -> bytes:
    marked = bytearray(join_frames_in_python(block, bounds, edges))
    before = 0
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        shift = before - bounds[start] - 1
        for begin in starts[start:stop]:
            marked[begin + shift] = mark
        before += bounds[stop] - bounds[start]
    return bytes(marked)


try:
    from polycast.dialects import _scan
except ImportError:
    COMPILED = False
    bodies, divided, lines, pubs = bodies_in_python, divided_in_python, lines_in_python, pubs_in_python
    join_frames, mark_frames = join_frames_in_python, mark_frames_in_python
else:
    COMPILED = True
    bodies, divided, lines, pubs = _scan.bodies, _scan.divided, _scan.lines, _scan.pubs
    join_frames, mark_frames = _scan.join_frames, _scan.mark_frames
