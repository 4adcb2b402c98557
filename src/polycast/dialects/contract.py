"""The contract of a dialect: everything that the rest of the program knows about it, as data.

A dialect is a folder whose `dialect` module declares a `Dialect`. The registry lists it, and listeners, settings,
publishing by request, WebSocket endpoints, access rules and clients follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polycast.address import Address
from polycast.dialects.client_session import ClientSession, Credentials
from polycast.dialects.session import Session, SessionContext

STREAMS = ("tcp", "tls", "ipc")
"""Schemes of addresses that every dialect on a plain stream can use."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a listener of this name does with the peers that connect to it."""

    listener: str
    dialect: str
    session: Callable[[SessionContext], Session]
    default: str = ""
    """The default address; empty: the listener opens only when it is configured."""
    echo: bool = True
    """Whether a publisher that subscribed to its own topic receives its own messages."""
    link: bool = False
    """Whether the peer is a broker, not a client."""
    options: tuple[str, ...] = ()
    """Options of its address, besides those that every listener has."""
    dials: bool = False
    """Whether the broker can also connect in this role (`--connect`)."""


@dataclass(frozen=True, slots=True)
class PublishRules:
    """The messages that a publisher of this dialect can write: `polycast/publish` refuses all others."""

    topic_excludes: bytes = b""
    """Bytes that a topic cannot contain."""
    payload_excludes: bytes = b""
    """Bytes that a payload cannot contain."""
    empty_topic: bool = True
    """Whether a topic may be empty."""
    formats: bool = False
    """Whether messages have a format; without, every payload is bytes."""


@dataclass(frozen=True, slots=True)
class WebSocketEndpoint:
    """Where the http listener accepts a WebSocket for this dialect: at a path, or at any path by sub-protocol."""

    dialect: str
    session: Callable[[SessionContext, str], Session]
    """From the context and the query of the URL. ValueError: the query is invalid."""
    protocol: str
    """The sub-protocol, which is confirmed if the client offers it."""
    path: str = ""
    """Empty: any path, if the client offers the sub-protocol."""


@dataclass(frozen=True, slots=True)
class DialectClient:
    """How `polycast.client` connects in this dialect."""

    session: Callable[[Address, bool, Credentials], ClientSession]
    """From the address, whether the connection publishes, and the credentials."""
    publishers: str
    """The listener for publishers."""
    subscribers: str
    """The listener for subscribers."""
    schemes: tuple[str, ...] = STREAMS


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    roles: tuple[Role, ...]
    settings: type[Any] | None = None
    """A frozen dataclass of `setting` fields: the table of this name in the configuration."""
    publish_rules: Callable[[Any], PublishRules] = lambda settings: PublishRules()
    """From the dialect's settings, or None without a table."""
    endpoints: tuple[WebSocketEndpoint, ...] = ()
    client: DialectClient | None = None
    compiled: bool | None = None
    """Whether its own scan runs compiled; None: it has none."""
