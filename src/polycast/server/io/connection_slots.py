"""The places that `limits.connections` gives, and who may hold them.

    known      an identity that may do something: any place, as long as it likes
    unknown    nobody in particular, who may do something all the same (`anonymous may ...`): not the reserve
    on trial   who may do nothing yet, but can still show a token; or finds no place for the unknown:
               at most half of the places, for `limits.handshake_seconds`, with small buffers

Where there is no place left, whoever is on trial makes room for a newcomer: the oldest from the address that has
the most. So peers that say nothing cannot keep out a client that has a token, however many they are.
"""

from __future__ import annotations

from collections import Counter

from polycast.server.io.address_groups import AddressGroups
from polycast.server.io.connection import Connection

RESERVE_SHARE, RESERVE_AT_LEAST = 10, 16
"""A tenth of the places, or so many, are for known identities alone."""
TRIAL_SHARE = 2
ADDRESS_SHARE = 4
"""What one address may hold of all places, unless `limits.connections_per_address` says something else."""
DISPLACED = "displaced"
"""What is counted for a connection that made room for another."""


class ConnectionSlots:
    def __init__(self, total: int, per_address: int) -> None:
        self._known: set[Connection] = set()
        self._unknown: dict[Connection, str] = {}
        self._unknown_at: Counter[str] = Counter()
        """How many unknown ones each address holds."""
        self._on_trial: AddressGroups[Connection] = AddressGroups()
        self.resize(total, per_address)

    def resize(self, total: int, per_address: int) -> None:
        self.total = total
        self.per_address = per_address or max(1, total // ADDRESS_SHARE)
        self._for_unknown = total - min(max(total // RESERVE_SHARE, RESERVE_AT_LEAST), total // 2)
        self._for_trial = max(1, total // TRIAL_SHARE)

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown) + len(self._on_trial)

    def enter(self, connection: Connection) -> bool:
        """False: there is no place for it."""
        if self._settle(connection):
            return True
        return connection.session.accepts_token and self._put_on_trial(connection)

    def why_not(self, connection: Connection) -> str:
        """For the log: why there was no place for it."""
        if len(self) >= self.total:
            cure = "raise limits.connections, or ulimit -n, to accept it"
            return f"{self.total:,} connections are open already; {cure}"
        if self._unknown_at[connection.origin] >= self.per_address:
            cure = "raise limits.connections_per_address to accept it"
            return f"its address holds {self.per_address:,} connections without a known identity; {cure}"
        cure = "the others are for known identities; raise limits.connections to accept it"
        return f"{self._for_unknown:,} connections without a known identity are open already; {cure}"

    def leave(self, connection: Connection) -> None:
        self._known.discard(connection)
        self._on_trial.discard(connection)
        origin = self._unknown.pop(connection, None)
        if origin is not None:
            self._unknown_at[origin] -= 1
            if not self._unknown_at[origin]:
                del self._unknown_at[origin]

    def review(self, connection: Connection) -> None:
        """Its rights may have changed since it got its place."""
        has_no_rights = connection.guard.has_no_rights
        if connection not in self._on_trial:
            if has_no_rights:
                self.leave(connection)
                self._put_on_trial(connection)
        elif not has_no_rights:
            self._on_trial.discard(connection)
            if not self._settle(connection):
                self._on_trial.add(connection, connection.origin)

    def _settle(self, connection: Connection) -> bool:
        guard, origin = connection.guard, connection.origin
        if guard.has_no_rights or not (guard.known or self._has_room_for_unknown(origin)) or not self._make_room():
            return False
        if guard.known:
            self._known.add(connection)
        else:
            self._unknown[connection] = origin
            self._unknown_at[origin] += 1
        connection.end_trial()
        return True

    def _has_room_for_unknown(self, origin: str) -> bool:
        return len(self._unknown) < self._for_unknown and self._unknown_at[origin] < self.per_address

    def _put_on_trial(self, connection: Connection) -> bool:
        origin = connection.origin
        if self._on_trial.of(origin) + self._unknown_at[origin] >= self.per_address:
            reason = f"its address holds {self.per_address:,} connections (limits.connections_per_address)"
            self._displace(self._on_trial.oldest(origin), reason)
        elif len(self._on_trial) >= self._for_trial:
            reason = f"{self._for_trial:,} connections have shown none, half of limits.connections"
            self._displace(self._on_trial.first_to_go(), reason)
        if not self._make_room():
            return False
        self._on_trial.add(connection, origin)
        connection.begin_trial()
        return True

    def _make_room(self) -> bool:
        if len(self) >= self.total:
            reason = f"{self.total:,} connections are open (limits.connections)"
            self._displace(self._on_trial.first_to_go(), reason)
        return len(self) < self.total

    def _displace(self, connection: Connection | None, reason: str) -> None:
        if connection is not None:
            self._on_trial.discard(connection)
            connection.end(DISPLACED, f"no identity with rights, makes room for another: {reason}")
            connection.abort()
