"""The base of sessions: one connection's side of a dialect.

A session receives whole blocks of bytes and returns events. It does no I/O and has no clock: the time comes with
the bytes. It buffers no input: an unfinished frame stays in the block and comes again with more bytes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from polycast.address import Address
from polycast.dialects.first_line import is_own
from polycast.dialects.guard import Guard
from polycast.errors import HermodPeerError, PeerError
from polycast.model import Block, Body, Event, Limits, Received, Subscribe


@dataclass(frozen=True, slots=True)
class Page:
    """The response to an HTTP request."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    detail: str = ""
    """Details of a refusal for the broker's stderr."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a session knows about its listener and the broker."""

    limits: Limits = field(default_factory=Limits)
    scheme: str = "tcp"
    """The transport: tcp, ipc or ws."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The options in the listener's address."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """The settings of dialects, by dialect; a missing table has its defaults."""
    pages: Callable[[str], Page | None] = lambda path: None
    public_pages: Container[str] = ()
    """Paths of pages that need no rights: they say nothing about the broker."""
    listeners: Callable[[Guard, str], Page | None] = lambda guard, host: None
    """The page with the listeners that a peer may use, for a client that reached the broker under that host."""
    has_log: bool = False
    """Whether the broker has a log, which batch ids, stages and replay need."""
    log_id: str = ""
    log_next: Callable[[], int] = lambda: 0
    """The next offset of the log."""
    batch_ids: int = 0
    """How many batch ids the log remembers."""
    dialed: Address | None = None
    """The address that the broker dialled; None: the peer connected."""
    secure: bool = False
    """Whether the listener uses TLS."""
    host: str = ""
    """The host in the listener's address; empty: the listener is a socket file."""
    http_addresses: Callable[[], str] = lambda: ""
    """The addresses of the http listener, as text; empty: there is none."""


class Session:
    """One connection's side of a dialect, with the defaults that suit most dialects."""

    guard = Guard()
    accepts_token = False
    """Whether the peer can send a token, now or later."""

    handshake_done = True
    carries_messages = True
    """Whether the peer can publish and subscribe, now or after the handshake."""
    acknowledges = False
    """Whether publications are acknowledged with an `Ack`."""
    withheld_bytes = 0
    """Bytes that the session withholds until the peer's window has room."""
    first_line_checked = False
    """Whether the first line is known to be no HTTP request; line-based dialects call `check_first_line`."""
    buffered_bytes = 0
    """Bytes of unfinished input that the session holds, besides the frame that stays in the block."""
    requests_served = 0
    """Number of HTTP requests with a response."""
    keep_alive = b""
    """What the broker sends to a silent connection from time to time."""
    body_since = 0.0
    """When the body of an HTTP request began that is not complete (as `now` in `receive`); 0: there is none."""

    def __init__(self, context: SessionContext) -> None:
        self._limits = context.limits
        self._http_addresses = context.http_addresses

    def check_first_line(self, block: Block) -> None:
        """To be called before the first line is used. HttpPeerError, TlsPeerError: the peer is a browser.

        HermodPeerError: the peer is a client of hermod."""
        self.first_line_checked = is_own(block, self._limits.line_bytes, self._http_addresses)

    def open(self) -> list[Event]:
        """Events before the first input: a greeting, standing subscriptions."""
        return []

    def receive(self, block: Block, now: float) -> Received:
        raise NotImplementedError

    def begun_topic(self, head: bytes) -> bytes | None:
        """The topic of an unfinished publication that starts with `head`; None: unknown.

        The connection is closed early if the topic is forbidden."""
        return None

    def end(self, rest: Block, now: float) -> list[Event]:
        """The peer has closed its side; `rest` is the unfinished frame."""
        return []

    def close(self) -> None:
        """The connection is closed: release everything that is held for the peer."""

    def to_miss(self, first: int, after: int, cause: str) -> bytes:
        """The notice that the log cannot deliver the messages from offset `first` up to `after`, in place of them.

        Empty: the dialect has none."""
        return b""

    def closing_bytes(self, error: PeerError | None) -> bytes:
        """The last bytes before the broker closes the connection: for this error, or because it stops."""
        if isinstance(error, HermodPeerError):
            return b'{"status": "ERROR", "code": %d, "message": "%b"}\n' % (error.code, str(error).encode())
        return b""


def opening(session: Session) -> list[Event]:
    """The events of `open` that the peer has the rights for."""
    return narrowed(session.guard, session.open())


def narrowed(guard: Guard, events: list[Event]) -> list[Event]:
    """The events, with standing subscriptions narrowed to the rights of the peer."""
    if not guard.restricted:
        return events
    allowed: list[Event] = []
    for event in events:
        if isinstance(event, Subscribe):
            allowed += [replace(event, pattern=pattern) for pattern in guard.narrow(event.pattern)]
        else:
            allowed.append(event)
    return allowed


class LinkSession(Session):
    """A session that can also subscribe: the broker's side of a mesh link."""

    def to_subscribe(self, text: str) -> bytes:
        """The command that subscribes to topics that contain `text`."""
        raise NotImplementedError

    def to_unsubscribe(self, text: str) -> bytes:
        raise NotImplementedError


class RequestSession(Session):
    """A session whose peer can send requests and serve routes."""

    one_request = False
    """Whether the session reads no further before the response to a request: see `Connection.continue_input`."""

    def to_request(self, number: int, route: str, body: Body) -> bytes:
        """A request for this peer, which serves the route."""
        raise NotImplementedError

    def to_response(self, handle: Any, success: bool, body: Body) -> bytes:
        """The response to a request of this peer; `handle` is that of its `Request`."""
        raise NotImplementedError

    def response_blocks(self, handle: Any, success: bool, body: Body) -> tuple[bytes, ...]:
        """The same bytes in blocks, so that a large body is not copied."""
        return (self.to_response(handle, success, body),)
