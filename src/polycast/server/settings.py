"""Every setting, declared once: its default, its unit, its bounds and what it means.

The configuration file, the environment, the flags, `serve --check` and the reference in the docs are all
derived from these classes. A table is a class, a key is a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from polycast.address import SECURE, parse_address
from polycast.declare import setting
from polycast.dialects.contract import Dialect
from polycast.dialects.registry import DIALECTS, ROLES
from polycast.errors import StartError
from polycast.log.settings import LogSettings
from polycast.model import Limits
from polycast.server.access.settings import AccessSettings, TlsSettings

MIB = 1024 * 1024
POLICIES = ("disconnect", "drop", "spill")


def parse_node(text: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,32}", text):
        raise ValueError("expected up to 32 letters, digits, - or _")


def parse_host_port(text: str) -> None:
    host, _, port = text.rpartition(":")
    if (
        not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host)
        or not port.isdecimal()
        or not 0 < int(port) < 65536
    ):
        raise ValueError("expected HOST:PORT")


def parse_server(text: str) -> None:
    """The errors do not show the address: it may have a password."""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("nats", "tls") and parts.hostname and parts.port != 0
    except ValueError:  # the port, or a bracket without its other
        valid = False
    if not valid:
        raise ValueError("expected nats://HOST:PORT or nats://USER:PASSWORD@HOST:PORT")


def parse_stream(text: str) -> None:
    parse_node(text)
    if not text:
        raise ValueError("expected a name")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    payload_bytes: int = setting(16 * MIB, "maximum size of a payload", low=1)
    topic_bytes: int = setting(1024, "maximum length of a topic", low=1)
    line_bytes: int = setting(65_536, "maximum length of a line or JSON header", low=64)
    queue_bytes: int = setting(32 * MIB, "bytes queued for one connection before `policy` applies", low=4096)
    total_queue_bytes: int = setting(
        512 * MIB, "bytes queued for all connections before publishers are paused", low=4096
    )
    total_receive_bytes: int = setting(
        512 * MIB,
        "memory for incomplete frames of all connections; beyond it connections are not read until memory is free",
        low=4096,
    )
    policy: str = setting("disconnect", "action when a connection's queue exceeds queue_bytes", choices=POLICIES)
    connections: int = setting(65_536, "maximum number of connections", low=1)
    connections_per_address: int = setting(
        0,
        "maximum number of unidentified connections per IP address; 0: a quarter of limits.connections",
        low=0,
    )
    subscriptions: int = setting(250_000, "maximum number of subscriptions per connection", low=1)
    topics: int = setting(1_000_000, "maximum number of topics whose sequence is remembered", low=2)
    handshake_seconds: float = setting(
        10.0, "time limit for a peer to complete its handshake and to authenticate", low=0.001
    )
    frame_seconds: float = setting(
        60.0,
        "close a connection that receives no byte of an incomplete frame for this long, "
        "or whose frame takes this long in total while others wait for memory; 0: never",
        low=0,
    )
    http_idle_seconds: float = setting(
        75.0, "close an http connection without a request for this long; 0: never", low=0
    )
    idle_seconds: float = setting(0.0, "close a connection without traffic for this long; 0: never", low=0)
    stall_seconds: float = setting(
        30.0,
        "close a connection whose queue makes no progress for this long, unless its policy is spill; 0: never",
        low=0,
    )
    ack_seconds: float = setting(
        300.0, "close a subscriber with a full window that sends no acknowledgement for this long; 0: never", low=0
    )
    reads: int = setting(
        64, "maximum number of pending reads of the log per connection; further ones fail at once", low=1
    )
    read_seconds: float = setting(
        25.0, "time limit for one read of the log, including waiting; 0: unlimited", low=0
    )
    shutdown_seconds: float = setting(5.0, "how long a stopping broker flushes its queues", low=0)

    def for_dialects(self) -> Limits:
        return Limits(self.payload_bytes, self.topic_bytes, self.line_bytes)


@dataclass(frozen=True, slots=True)
class EventSettings:
    enabled: bool = setting(True, "publish events about connections, subscriptions and drops on polycast/events/")
    unknown_per_second: int = setting(
        10,
        "maximum number of events per second about unidentified peers; "
        "the others are counted in polycast/events/summary",
        low=0,
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    servers: list[str] = setting([], "the nats-servers of the cluster, as nats://HOST:PORT; empty: no cluster")
    node: str = setting("", "the name of this node: letters, digits, - and _", parse=parse_node)
    stream: str = setting("POLYCAST", "the name of the stream", parse=parse_stream)
    name: str = setting(
        "polycast",
        "with manage: the name of the cluster of nats-servers, the same at all nodes",
        parse=parse_stream,
    )
    replicas: int = setting(
        0, "copies of the stream when it is created; 0: one for each server, three at most", low=0
    )
    credentials: str = setting(
        "",
        "a NATS credentials file; or user and password are part of the URL. With manage: a file with the password "
        "of all servers and nodes, DIR/nats/password by default; it is created if it is not there",
    )
    tls: bool = setting(
        False,
        "connect to the servers over TLS, verified by tls.ca or the system's authorities. With manage: the server "
        "uses tls.certificate and tls.key, for nodes and other servers",
    )
    manage: bool = setting(False, "start a nats-server for this node, in DIR/nats, and supervise it")
    listen: str = setting(
        "127.0.0.1:4222", "with manage: HOST:PORT where the server accepts nodes", parse=parse_host_port
    )
    route: str = setting(
        "127.0.0.1:6222", "with manage: HOST:PORT where the server accepts other servers", parse=parse_host_port
    )
    routes: list[str] = setting(
        [], "with manage: HOST:PORT of all other servers, as their `route` has it; empty: a single server"
    )
    ack: str = setting(
        "applied",
        "acknowledge when a majority of the servers has a message on disk and this node has applied it; "
        "fsync: and when it is durable in the log of this node as well",
        choices=("applied", "fsync"),
    )
    max_bytes: int = setting(
        1024 * MIB, "size of the stream when it is created; its oldest messages are removed", low=4 * MIB
    )
    pending_bytes: int = setting(
        64 * MIB,
        "bytes that wait for the stream before publishers are paused, and refused at twice as many",
        low=MIB,
    )

    @property
    def enabled(self) -> bool:
        return bool(self.servers) or self.manage

    @property
    def secure(self) -> bool:
        return self.tls or any(server.startswith("tls:") for server in self.servers)


@dataclass(frozen=True, slots=True)
class StderrSettings:
    format: str = setting(
        "text",
        "format of log lines on stderr: plain text, or one JSON object per line",
        choices=("text", "json"),
    )


DIALECT_TABLES = {name: dialect.settings for name, dialect in DIALECTS.items() if dialect.settings}


def default_listeners() -> dict[str, list[str]]:
    return {name: [role.default] for name, role in ROLES.items() if role.default}


def default_dialect_tables() -> dict[str, Any]:
    return {name: table() for name, table in DIALECT_TABLES.items()}


@dataclass(frozen=True, slots=True)
class Settings:
    listen: dict[str, list[str]] = field(default_factory=default_listeners)
    connect: dict[str, list[str]] = field(default_factory=dict)
    """Addresses that the broker dials, by listener name."""
    log: LogSettings = field(default_factory=LogSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    events: EventSettings = field(default_factory=EventSettings)
    stderr: StderrSettings = field(default_factory=StderrSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    dialects: Mapping[str, Any] = field(default_factory=default_dialect_tables)
    """The settings of each dialect that has any."""

    def __getattr__(self, name: str) -> Any:
        """The table of a dialect, as in `settings.hermod`."""
        if name in DIALECT_TABLES:
            return self.dialects[name]
        raise AttributeError(name)

    @property
    def dials_securely(self) -> bool:
        """Whether the broker dials anything over TLS."""
        addresses = [*self.simplest.peers, *(text for texts in self.connect.values() for text in texts)]
        return self.simplest.discover_tls or any(parse_address(text, "tcp").scheme in SECURE for text in addresses)


def to_tables(dialects: Mapping[str, Dialect]) -> dict[str, type[Any]]:
    """The class of each table of the configuration. No dialect may have the name of a table of the broker."""
    kinds = get_type_hints(Settings)
    for name in dialects:
        if name in kinds:
            hint = "uninstall the package that declares it, or give the dialect another name"
            raise StartError(f"the dialect {name} has the name of a table of the broker's settings", hint)
    own = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    return own | {name: dialect.settings for name, dialect in dialects.items() if dialect.settings}


TABLES = to_tables(DIALECTS)


@cache
def types() -> dict[str, Any]:
    """The type of every setting by its full key."""
    return {f"{table}.{key}": kind for table, cls in TABLES.items() for key, kind in get_type_hints(cls).items()}


def declared() -> dict[str, Field[Any]]:
    """Every setting by its full key, as in `limits.queue_bytes`."""
    return {f"{table}.{f.name}": f for table, cls in TABLES.items() for f in fields(cls)}
