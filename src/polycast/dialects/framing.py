"""Framing: from blocks to events, from bursts to blocks."""

from __future__ import annotations

import re

from polycast.dialects.scan import Scan, join_frames
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
    Format,
    Received,
    Refused,
    Slices,
)
from polycast.model.burst import edges_of

SHARE_TO_PIN = 4
"""A slice smaller than a quarter of its block is copied: a slow reader must not keep whole blocks alive."""


SHORT_LINE_BYTES = 64
"""Bad lines below this length are found many at a time. No limit of a line is lower in a broker."""


def append_event(events: list[Event], event: Event) -> None:
    """Appends an event. Consecutive refusals for one reason become one event: a read can bring very many."""
    if type(event) is Refused and events:
        last = events[-1]
        if type(last) is Refused and last.reason == event.reason and last.detail == event.detail:
            events[-1] = Refused(last.reason, last.count + event.count, last.detail)
            return
    events.append(event)


class Reading:
    """Collects the events of one block, in order. Consecutive single messages become one burst."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._events: list[Event] = []
        self._rows: list[tuple[bytes, bytes, Format]] = []

    def add(self, event: Event) -> None:
        self._end_rows()
        append_event(self._events, event)

    def add_message(self, topic: bytes, payload: bytes, format_: Format) -> None:
        self._rows.append((topic, payload, format_))

    def add_scan(self, block: Block, scan: Scan, native: Encoder | None) -> None:
        topics, run_ends, starts, ends, bounds, *_ = scan
        if topics:
            formats = [Format.BYTES] * len(topics)
            self.add(Burst(self._dialect, block, starts, ends, topics, formats, run_ends, bounds, native))

    def refuse_lines(self, lines: re.Pattern[bytes], block: Block, position: int, reason: str) -> int:
        """Refuses all lines that the pattern finds here; returns the position after them."""
        found = lines.match(block, position)
        if found is None:
            return position
        self.add(Refused(reason, block.count(b"\n", position, found.end())))
        return found.end()

    def close(self, consumed: int, frame_bytes: int = 0, frame_end: bytes = b"") -> Received:
        self._end_rows()
        return Received(self._events, consumed, frame_bytes, frame_end)

    def _end_rows(self) -> None:
        if self._rows:
            self._events.append(Burst.of(self._dialect, self._rows))
            self._rows = []


class ReadingSession(Session):
    """A session that reads a block into a `Reading`, up to the first error of the peer."""

    dialect: str

    def receive(self, block: Block, now: float) -> Received:
        reading = Reading(self.dialect)
        try:
            if not self.first_line_checked:
                self.check_first_line(block)
            return self.read(block, now, reading)
        except PeerError as error:
            reading.add(Closing(error))
            return reading.close(len(block))

    def read(self, block: Block, now: float, reading: Reading) -> Received:
        raise NotImplementedError


class ScanningSession(ReadingSession):
    """A session that reads plain frames by a scan, and all other frames one by one."""

    native: Encoder
    """The encoder whose frames are those of the scan, so that they are sent as they arrived."""

    def read(self, block: Block, now: float, reading: Reading) -> Received:
        position = 0
        while True:
            scan = self.scan(block, position)
            reading.add_scan(block, scan, self.native)
            *_, position, need, unfinished = scan
            if unfinished:
                return reading.close(position, need)
            after, need = self.read_odd(block, position, now, reading)
            if after == position:
                return reading.close(position, need)
            position = after

    def scan(self, block: Block, position: int) -> Scan:
        raise NotImplementedError

    def read_odd(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int]:
        """Reads one frame of any kind: the position after it, or the same position and the length of the frame."""
        raise NotImplementedError


def pass_through(burst: Burst, slices: Slices) -> Encoded:
    """Slices of a burst for its native encoder: the bytes are sent as they were read."""
    bounds = burst.bounds
    if len(slices) > 1:
        joined = join_frames(burst.block, bounds, edges_of(slices))
        return Encoded([joined], len(joined))
    [(start, stop)] = slices
    begin, end = bounds[start], bounds[stop]
    small = (end - begin) * SHARE_TO_PIN < len(burst.block)
    piece: Buffer = burst.block[begin:end] if small else memoryview(burst.block)[begin:end]
    return Encoded([piece], end - begin)


def read_line(block: Block, position: int, limit: int) -> tuple[bytes, int]:
    """The next line without LF or CRLF, and the position after it; the same position: unfinished."""
    end = block.find(b"\n", position, position + limit + 2)
    size = (end if end >= 0 else len(block)) - position
    if size > limit and not (size == limit + 1 and block[position + limit] == ord("\r")):
        raise LimitError("a line", size, limit, "limits.line_bytes")
    if end < 0:
        return b"", position
    return bytes(block[position:end]).removesuffix(b"\r"), end + 1
