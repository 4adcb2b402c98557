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
from polycast.errors import PeerError
from polycast.model import Block, Body, Event, Limits, Received, Subscribe


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
