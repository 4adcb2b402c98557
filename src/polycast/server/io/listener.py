"""One address, listening or dialled, and what its connections share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from polycast.address import Address
from polycast.dialects.contract import Role
from polycast.dialects.guard import Guard
from polycast.dialects.session import SessionContext
from polycast.model import Event
from polycast.server.access.access_control import AccessControl, ConnectionGuard
from polycast.server.io.connection import Connection
from polycast.server.io.memory_budget import MemoryBudget
from polycast.server.io.partial_frames import PartialFrames
from polycast.server.io.read_scheduler import ReadScheduler
from polycast.server.io.receive_buffer import ReceiveBuffer, SharedMemory
from polycast.server.settings import LimitSettings
from polycast.server.stats.counters import Counters


@dataclass(frozen=True, slots=True)
class ListenerContext:
    """What all listeners share, and the broker's handlers for their connections."""

    limits: Callable[[], LimitSettings]
    access: AccessControl
    counters: dict[tuple[str, str], Counters]
    """By listener and dialect."""
    budget: MemoryBudget
    partial_frames: PartialFrames
    session_context: Callable[[Address, bool], SessionContext]
    opened: Callable[[Connection], bool]
    received: Callable[[Connection, list[Event], float], None]
    awaits_reply: Callable[[Connection], bool]
    dropped: Callable[[Connection, int, int], None]
    spill: Callable[[Connection], None]
    leave: Callable[[Connection], None]
    review: Callable[[Connection], None]
    closed: Callable[[Connection], None]
    memory: SharedMemory
    """The memory that all connections read into."""
    numbers: count[int] = field(default_factory=lambda: count(1))
    """Connections are named after them."""
    prefix: str = ""
    """In front of the number, in a cluster: the name of the node."""
    read_scheduler: ReadScheduler = field(default_factory=ReadScheduler)


class Listener:
    def __init__(
        self, context: ListenerContext, role: Role, address: Address, dialed: bool = False, announced: bool = False
    ) -> None:
        """`announced`: a mesh announcement named the address, not the configuration."""
        self._context = context
        self._address = address
        self._dialed = dialed
        self._announced = announced
        self._session_context = context.session_context(address, dialed)
        limits = context.limits()
        self.role = role
        policy = address.options.get("policy", limits.policy)
        self.policy = "disconnect" if role.link else policy  # a mesh link must not miss a command
        self.replay = address.options.get("replay", "")
        self.counters = context.counters.setdefault((role.listener, role.dialect), Counters())
        self.queue_bytes = limits.queue_bytes
        self.unauthorized_bytes = limits.line_bytes
        self.budget = context.budget
        self.partial_frames = context.partial_frames
        self.read_scheduler = context.read_scheduler
        self.opened = context.opened
        self.received = context.received
        self.awaits_reply = context.awaits_reply
        self.dropped = context.dropped
        self.spill = context.spill
        self.leave = context.leave
        self.review = context.review
        self.closed = context.closed

    def connection(self) -> Connection:
        session = self.role.session(self._session_context)
        name = f"{self._context.prefix}#{next(self._context.numbers)}"
        return Connection(self, session, ReceiveBuffer(self._context.memory), name, self._dialed)

    def speaking(self, dialect: str) -> Listener:
        role = replace(self.role, dialect=dialect)
        return Listener(self._context, role, self._address, self._dialed, self._announced)

    def admit(self, peer: Any, certificate: Any) -> Guard:
        access = self._context.access
        host = None if self._address.scheme == "ipc" else peer[0] if peer else ""
        if not self._dialed:
            return ConnectionGuard(access, access.identify(host, certificate), self.role.dialect)
        identity = access.identify_dialled(host, certificate, self._announced)
        return ConnectionGuard(access, identity, self.role.dialect, configured=not self._announced)
