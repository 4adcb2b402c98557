"""The contract of a dialect: what the server needs to know to give it a port.

A session is one connection's side of a dialect. It is handed whole blocks of bytes and answers with events; it
does no I/O and has no clock (the time comes in with the bytes). It holds no input either: what it could not
finish yet is left in the block, and comes again with more behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from polycast.dialects.scan import Scan
from polycast.errors import LimitError, PeerError
from polycast.model import Block, Burst, Closing, Event, Format, Limits, Received


class Session(Protocol):
    handshaken: bool
    """Whether the peer has said all that it must say before it may stay."""

    def open(self) -> list[Event]:
        """What happens before the peer has said anything: a greeting, standing subscriptions."""
        ...

    def receive(self, block: Block, now: float) -> Received: ...


class LinkSession(Session, Protocol):
    """A session that can also ask: the broker's side of a mesh link."""

    def ask(self, text: str) -> bytes:
        """The command that subscribes to topics with `text` in them."""
        ...

    def unask(self, text: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Role:
    """What a listener of this name does with those who connect to it."""

    listener: str
    dialect: str
    session: Callable[[Limits], Session]
    default: str = ""
    """Where it listens unless told otherwise; empty: only when asked to."""
    echo: bool = True
    """Whether a publisher that subscribed to its own topic hears itself."""
    link: bool = False
    """Whether the other end is a broker, not a client."""


class Reading:
    """The events of one block while they are found, in their order.

    Messages that came one at a time wait here until something else happens, and become one burst then.
    """

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._events: list[Event] = []
        self._rows: list[tuple[bytes, bytes, Format]] = []

    def add(self, event: Event) -> None:
        self._end_rows()
        self._events.append(event)

    def add_message(self, topic: bytes, payload: bytes, format_: Format) -> None:
        self._rows.append((topic, payload, format_))

    def add_scan(self, block: Block, scan: Scan) -> None:
        topics, run_ends, starts, ends, bounds, *_ = scan
        if topics:
            formats = [Format.BYTES] * len(topics)
            self.add(Burst(self._dialect, block, starts, ends, topics, formats, run_ends, bounds))

    def close(self, consumed: int, need: int = 0) -> Received:
        self._end_rows()
        return Received(self._events, consumed, need)

    def _end_rows(self) -> None:
        if self._rows:
            self._events.append(Burst.of(self._dialect, self._rows))
            self._rows = []


class ScanningSession:
    """A session whose plain frames are found by a scan, and everything else one by one."""

    handshaken = True
    dialect: str

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def open(self) -> list[Event]:
        return []

    def receive(self, block: Block, now: float) -> Received:
        reading = Reading(self.dialect)
        position = 0
        try:
            while True:
                scan = self.scan(block, position)
                reading.add_scan(block, scan)
                *_, position, need, unfinished = scan
                if unfinished:
                    return reading.close(position, need)
                after, need = self.read_odd(block, position, now, reading)
                if after == position:
                    return reading.close(position, need)
                position = after
        except PeerError as error:
            reading.add(Closing(error))
            return reading.close(len(block))

    def scan(self, block: Block, position: int) -> Scan:
        raise NotImplementedError

    def read_odd(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int]:
        """One frame of whatever kind: the position after it, or the same one and how long it will be."""
        raise NotImplementedError


def read_line(block: Block, position: int, limit: int) -> tuple[bytes, int]:
    """The next line without its LF or CRLF, and the position after it (the same position: unfinished)."""
    end = block.find(b"\n", position, position + limit + 2)
    size = (end if end >= 0 else len(block)) - position
    if size > limit and not (size == limit + 1 and block[position + limit] == ord("\r")):
        raise LimitError("a line", size, limit, "limits.line_bytes")
    if end < 0:
        return b"", position
    return bytes(block[position:end]).removesuffix(b"\r"), end + 1
