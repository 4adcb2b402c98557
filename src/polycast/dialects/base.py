"""The contract of a dialect: what the server needs to know to give it a port.

A session is one connection's side of a dialect. It is handed whole blocks of bytes and answers with events; it
does no I/O and has no clock (the time comes in with the bytes). It holds no input either: what it could not
finish yet is left in the block, and comes again with more behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from polycast.address import Address
from polycast.dialects.first_line import is_own
from polycast.dialects.scan import Scan
from polycast.errors import LimitError, PeerError
from polycast.model import (
    Block,
    Body,
    Buffer,
    Burst,
    Closing,
    Encoded,
    Encoder,
    Event,
    Format,
    Limits,
    Pattern,
    Received,
    Slices,
    Subscribe,
)

SHOWN_CHARACTERS = 120
"""How much of what is forbidden goes to the log."""
SHARE_TO_PIN = 4
"""A slice smaller than a quarter of its block is copied: a slow reader must not keep whole blocks alive."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is to be seen under a path of the http port."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    detail: str = ""
    """What an operator would want to read about it, where it is a refusal."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a session is told when it begins."""

    limits: Limits = field(default_factory=Limits)
    scheme: str = "tcp"
    """How the peer is reached: tcp, ipc or ws."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What stands behind the `?` of the listener's address."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """The settings that dialects declared, by dialect; what is missing is at its defaults."""
    pages: Callable[[str], Page | None] = lambda path: None
    open: Container[str] = ()
    """Paths of pages that are for everybody: they tell nothing about the broker."""
    kept: bool = False
    """Whether the broker keeps a log, so that a session may promise what needs one."""
    dialed: Address | None = None
    """Where the broker connected to by itself; None: the peer came here."""
    secure: bool = False
    """Whether the listener speaks TLS."""
    host: str = ""
    """The host in the listener's address; empty: the listener is a file of this machine."""
    http: Callable[[], str] = lambda: ""
    """The addresses where HTTP is spoken, as text; empty: nowhere."""


class Guard:
    """Who a peer is, and what it may do. This one knows nobody, and lets everybody do everything."""

    identity = ""
    known = True
    """Whether the peer has shown who it is, or came from where that is known."""
    restricted = False
    """Whether anything is forbidden to it; where that is false nothing else need be asked."""
    has_no_rights = False
    """Whether it may do nothing at all."""
    publishes = True
    """Whether there is any topic that it may publish to."""
    admin = True
    """Whether it may look at the broker, and change what it does."""
    configured = False
    """Whether the broker connected to it because the configuration says so."""

    def renew(self) -> bool:
        """After what is allowed has changed; false: the peer is nobody any more."""
        return True

    def show(self, token: str | None) -> bool:
        """Whether that is a token, and the peer from here on whom it belongs to; None: it shows none."""
        return True

    def denial_text(self, to: str, what: str) -> str:
        """For those who read the log; the peer itself is told less."""
        return f"{self.identity} may not {to} {what[:SHOWN_CHARACTERS]!r}"

    def speak(self, dialect: str) -> None:
        """What it may do is what it may do in that dialect, from here on."""

    def may_publish(self, topic: bytes) -> bool:
        return True

    def may_subscribe(self, pattern: Pattern) -> bool:
        return True

    def may_serve(self, route: str) -> bool:
        """Whether it may respond to requests for that route."""
        return True

    @property
    def queries(self) -> list[Pattern] | None:
        """The topics that it may query with SQL; None: all of them."""
        return None

    def within(self, pattern: Pattern) -> list[Pattern]:
        """What of it the peer may hear, as far as that can be said in patterns."""
        return [pattern]

    def allows_host(self, host: str, own: str) -> bool:
        """Whether an HTTP request may call the broker `host`; `own` is the host in the listener's address."""
        return True

    def allows_origin(self, origin: str, host: str, secure: bool) -> bool:
        """Whether a page that came from `origin` may ask for anything at `host`, as the browser calls it."""
        return True


class Session:
    """One connection's side of a dialect. What is said here is what most of them do."""

    guard = Guard()
    accepts_token = False
    """Whether the peer can show a token, now or later."""

    handshake_done = True
    """Whether the peer has said all that it must say before it may stay."""
    takes_part = True
    """Whether it can publish and subscribe, now or when it is handshaken."""
    acknowledges = False
    """Whether it answers what its peer publishes, with a `Ack`."""
    withheld_bytes = 0
    """What this session keeps back until the peer has room for it."""
    began = False
    """Whether the first line is known not to be a browser's; whoever reads lines finds out with `begin`."""
    buffered_bytes = 0
    """What this session keeps of input that is not complete, beside the frame that it left in the block."""
    served = 0
    """How many requests were answered that need no rights."""

    def __init__(self, context: SessionContext) -> None:
        self._limits = context.limits
        self._http_places = context.http

    def begin(self, block: Block) -> None:
        """Call it before anything of the first line is used. HttpPeerError, TlsPeerError: it is a browser's."""
        self.began = is_own(block, self._limits.line_bytes, self._http_places)

    def open(self) -> list[Event]:
        """What happens before the peer has said anything: a greeting, standing subscriptions."""
        return []

    def receive(self, block: Block, now: float) -> Received:
        raise NotImplementedError

    def begun_topic(self, head: bytes) -> bytes | None:
        """The topic of a publication that has begun and is not all there; None: it cannot be told.

        `head` is how its frame begins. Where the topic is forbidden, the rest is not waited for."""
        return None

    def end(self, rest: Block, now: float) -> list[Event]:
        """The peer will say no more; `rest` is the frame it did not finish."""
        return []

    def close(self) -> None:
        """It is over, whoever ended it: nothing need be kept for the peer."""

    def closing_bytes(self, error: PeerError | None) -> bytes:
        """The last words when the broker ends the connection: for this error, or because it stops."""
        return b""


def opening(session: Session) -> list[Event]:
    """What happens before the peer has said anything, as far as it is allowed."""
    return narrowed(session.guard, session.open())


def narrowed(guard: Guard, events: list[Event]) -> list[Event]:
    """Events of the session's own making, with subscriptions only to what the peer may have."""
    if not guard.restricted:
        return events
    allowed: list[Event] = []
    for event in events:
        if isinstance(event, Subscribe):
            allowed += [replace(event, pattern=pattern) for pattern in guard.within(event.pattern)]
        else:
            allowed.append(event)
    return allowed


class LinkSession(Session):
    """A session that can also ask: the broker's side of a mesh link."""

    def ask(self, text: str) -> bytes:
        """The command that subscribes to topics with `text` in them."""
        raise NotImplementedError

    def unask(self, text: str) -> bytes:
        raise NotImplementedError


class RequestSession(Session):
    """A session whose peer can make requests, and answer them."""

    def to_request(self, number: int, route: str, body: Body) -> bytes:
        """A request for this peer, which offered to answer that route."""
        raise NotImplementedError

    def to_response(self, handle: Any, success: bool, body: Body) -> bytes:
        """The answer to a request of this peer; `handle` came with its `Request`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Role:
    """What a listener of this name does with those who connect to it."""

    listener: str
    dialect: str
    session: Callable[[SessionContext], Session]
    default: str = ""
    """Where it listens unless told otherwise; empty: only when asked to."""
    echo: bool = True
    """Whether a publisher that subscribed to its own topic hears itself."""
    link: bool = False
    """Whether the other end is a broker, not a client."""
    options: tuple[str, ...] = ()
    """What may stand behind the `?` of its address, besides what every listener takes."""
    dials: bool = False
    """Whether the broker can also be the one that connects (`--connect`)."""


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

    def add_scan(self, block: Block, scan: Scan, native: Encoder | None) -> None:
        topics, run_ends, starts, ends, bounds, *_ = scan
        if topics:
            formats = [Format.BYTES] * len(topics)
            self.add(Burst(self._dialect, block, starts, ends, topics, formats, run_ends, bounds, native))

    def close(self, consumed: int, need: int = 0, until: bytes = b"") -> Received:
        self._end_rows()
        return Received(self._events, consumed, need, until)

    def _end_rows(self) -> None:
        if self._rows:
            self._events.append(Burst.of(self._dialect, self._rows))
            self._rows = []


class ScanningSession(Session):
    """A session whose plain frames are found by a scan, and everything else one by one."""

    dialect: str
    native: Encoder
    """The form in which the frames that the scan finds can go out as they came in."""

    def receive(self, block: Block, now: float) -> Received:
        reading = Reading(self.dialect)
        position = 0
        try:
            if not self.began:
                self.begin(block)
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
        except PeerError as error:
            reading.add(Closing(error))
            return reading.close(len(block))

    def scan(self, block: Block, position: int) -> Scan:
        raise NotImplementedError

    def read_odd(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int]:
        """One frame of whatever kind: the position after it, or the same one and how long it will be."""
        raise NotImplementedError


def pass_through(burst: Burst, slices: Slices) -> Encoded:
    """Slices of a burst in its native form: the bytes that were read are the bytes to send."""
    bounds = burst.bounds
    if len(slices) > 1:
        joined = b"".join([burst.block[bounds[start] : bounds[stop]] for start, stop in slices])
        return Encoded([joined], len(joined))
    [(start, stop)] = slices
    begin, end = bounds[start], bounds[stop]
    small = (end - begin) * SHARE_TO_PIN < len(burst.block)
    piece: Buffer = burst.block[begin:end] if small else memoryview(burst.block)[begin:end]
    return Encoded([piece], end - begin)


def read_line(block: Block, position: int, limit: int) -> tuple[bytes, int]:
    """The next line without its LF or CRLF, and the position after it (the same position: unfinished)."""
    end = block.find(b"\n", position, position + limit + 2)
    size = (end if end >= 0 else len(block)) - position
    if size > limit and not (size == limit + 1 and block[position + limit] == ord("\r")):
        raise LimitError("a line", size, limit, "limits.line_bytes")
    if end < 0:
        return b"", position
    return bytes(block[position:end]).removesuffix(b"\r"), end + 1
