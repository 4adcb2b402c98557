"""What the connections of one address share, whether they come to it or are dialled from here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polycast.address import Address
from polycast.dialects.contract import Role
from polycast.dialects.guard import Guard
from polycast.model import Event
from polycast.server.access.access_control import ConnectionGuard
from polycast.server.io.connection import Connection
from polycast.server.stats.counters import Counters

if TYPE_CHECKING:
    from polycast.server.server import Server


class Listener:
    """One listening address, or one that is dialled, and what its connections share."""

    def __init__(
        self, server: Server, role: Role, address: Address, dialed: bool = False, found: bool = False
    ) -> None:
        """`found`: the address was announced; nobody configured it."""
        self._server = server
        self._address = address
        self._dialed = dialed
        self._found = found
        self._context = server.session_context(address, dialed)
        self.role = role
        policy = address.options.get("policy", server.core.settings.limits.policy)
        self.policy = "disconnect" if role.link else policy  # a link that lost a command would stay wrong
        self.replay = address.options.get("replay", "")
        self.counters = server.core.counters.setdefault((role.listener, role.dialect), Counters())
        self.queue_bytes = server.core.settings.limits.queue_bytes
        self.trial_bytes = server.core.settings.limits.line_bytes
        self.budget = server.core.budget
        self.unfinished = server.core.partial_frames

    def connection(self) -> Connection:
        session = self.role.session(self._context)
        return Connection(self, session, self._server.inbox(), self._server.next_name(), self._dialed)

    def speaking(self, dialect: str) -> Listener:
        role = replace(self.role, dialect=dialect)
        return Listener(self._server, role, self._address, self._dialed, self._found)

    def admit(self, peer: Any, certificate: Any) -> Guard:
        access = self._server.access
        host = None if self._address.scheme == "ipc" else peer[0] if peer else ""
        if not self._dialed:
            return ConnectionGuard(access, access.identify(host, certificate), self.role.dialect)
        identity = access.identify_dialled(host, certificate, self._found)
        return ConnectionGuard(access, identity, self.role.dialect, configured=not self._found)

    def owes(self, connection: Connection) -> bool:
        return self._server.core.dispatcher.awaits_reply(connection)

    def dropped(self, connection: Connection, messages: int, size: int) -> None:
        self._server.core.events.drop(connection, messages, size)

    def spill(self, connection: Connection) -> None:
        self._server.core.spill(connection)

    def ending(self, connection: Connection) -> None:
        self._server.core.dispatcher.close(connection)

    def review(self, connection: Connection) -> None:
        self._server.review(connection)

    def opened(self, connection: Connection) -> bool:
        return self._server.opened(connection)

    def received(self, connection: Connection, events: list[Event], now: float) -> None:
        self._server.core.dispatcher.handle(connection, events, now)

    def closed(self, connection: Connection) -> None:
        self._server.closed(connection)
