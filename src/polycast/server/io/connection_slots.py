"""The connection slots of `limits.connections`, and who may use them.

    known          an identity with rights: any slot
    anonymous      no identity, but rights (`anonymous may ...`): any slot but the reserve
    unauthorized   no rights yet, but may still show a token; or anonymous while no slot for anonymous is free:
                   at most half of the slots, for `limits.handshake_seconds`, with small buffers

When all slots are used, a new connection displaces an unauthorized one: the oldest from the address that has the
most. So any number of silent peers cannot lock out a client that has a token.
"""

from __future__ import annotations

from collections import Counter

from polycast.server.io.address_groups import AddressGroups
from polycast.server.io.connection import Connection

RESERVE_SHARE, RESERVE_AT_LEAST = 10, 16
"""A tenth of the slots, at least 16, are reserved for known identities."""
UNAUTHORIZED_SHARE = 2
ADDRESS_SHARE = 4
"""One address may use a quarter of the slots, unless `limits.connections_per_address` is set."""
DISPLACED = "displaced"
"""The reason under which displaced connections are counted."""


class ConnectionSlots:
    def __init__(self, total: int, per_address: int) -> None:
        self._known: set[Connection] = set()
        self._anonymous: dict[Connection, str] = {}
        self._anonymous_at: Counter[str] = Counter()
        """The number of anonymous connections by address group."""
        self._unauthorized: AddressGroups[Connection] = AddressGroups()
        self.resize(total, per_address)

    def resize(self, total: int, per_address: int) -> None:
        self.total = total
        self.per_address = per_address or max(1, total // ADDRESS_SHARE)
        self._for_anonymous = total - min(max(total // RESERVE_SHARE, RESERVE_AT_LEAST), total // 2)
        self._for_unauthorized = max(1, total // UNAUTHORIZED_SHARE)

    def __len__(self) -> int:
        return len(self._known) + len(self._anonymous) + len(self._unauthorized)

    def acquire(self, connection: Connection) -> bool:
        """False: no slot is free."""
        if self._add_authorized(connection):
            return True
        return connection.session.accepts_token and self._add_unauthorized(connection)

    def why_not(self, connection: Connection) -> str:
        """Why no slot was free, for the log."""
        if len(self) >= self.total:
            cure = "raise limits.connections, or ulimit -n, to accept it"
            return f"{self.total:,} connections are open; {cure}"
        if self._anonymous_at[connection.address_group] >= self.per_address:
            cure = "raise limits.connections_per_address to accept it"
            return f"its address holds {self.per_address:,} connections without a known identity; {cure}"
        cure = "the rest is reserved for known identities; raise limits.connections to accept it"
        return f"{self._for_anonymous:,} connections without a known identity are open; {cure}"

    def release(self, connection: Connection) -> None:
        self._known.discard(connection)
        self._unauthorized.discard(connection)
        group = self._anonymous.pop(connection, None)
        if group is not None:
            self._anonymous_at[group] -= 1
            if not self._anonymous_at[group]:
                del self._anonymous_at[group]

    def review(self, connection: Connection) -> None:
        """The rights of the connection may have changed since it got its slot."""
        has_no_rights = connection.guard.has_no_rights
        if connection not in self._unauthorized:
            if has_no_rights:
                self.release(connection)
                self._add_unauthorized(connection)
            elif connection.guard.known and connection in self._anonymous:
                self.release(connection)
                self._add_authorized(connection)
        elif not has_no_rights:
            self._unauthorized.discard(connection)
            if not self._add_authorized(connection):
                self._unauthorized.add(connection, connection.address_group)

    def _add_authorized(self, connection: Connection) -> bool:
        guard, group = connection.guard, connection.address_group
        if (
            guard.has_no_rights
            or not (guard.known or self._has_room_for_anonymous(group))
            or not self._make_room()
        ):
            return False
        if guard.known:
            self._known.add(connection)
        else:
            self._anonymous[connection] = group
            self._anonymous_at[group] += 1
        connection.mark_authorized()
        return True

    def _has_room_for_anonymous(self, group: str) -> bool:
        return len(self._anonymous) < self._for_anonymous and self._anonymous_at[group] < self.per_address

    def _add_unauthorized(self, connection: Connection) -> bool:
        group = connection.address_group
        if self._unauthorized.of(group) + self._anonymous_at[group] >= self.per_address:
            reason = f"its address holds {self.per_address:,} connections (limits.connections_per_address)"
            self._displace(self._unauthorized.oldest(group), reason)
        elif len(self._unauthorized) >= self._for_unauthorized:
            reason = f"{self._for_unauthorized:,} connections are without rights, half of limits.connections"
            self._displace(self._unauthorized.next_to_evict(), reason)
        if not self._make_room():
            return False
        self._unauthorized.add(connection, group)
        connection.mark_unauthorized()
        return True

    def _make_room(self) -> bool:
        if len(self) >= self.total:
            reason = f"{self.total:,} connections are open (limits.connections)"
            self._displace(self._unauthorized.next_to_evict(), reason)
        return len(self) < self.total

    def _displace(self, connection: Connection | None, reason: str) -> None:
        if connection is not None:
            self._unauthorized.discard(connection)
            connection.disconnect(DISPLACED, f"no rights, displaced by a new connection: {reason}")
