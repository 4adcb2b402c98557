"""Acknowledgements on a node of a cluster: they wait until its own proposals before them are applied.

A burst is applied later than it is proposed. Whatever a connection is told after a burst waits for the last
proposal of that connection; proposals are applied in their order, so replies keep theirs. What has waited goes on
to `DurableAcks`, or to `ReplicatedAcks` where the majority of the servers is all that a publisher waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from polycast.model import Ack
from polycast.server.dispatch.acks import DurableAcks, Then
from polycast.server.io.connection import Connection


class ReplicatedAcks(DurableAcks):
    """What was applied is durable: the stream has it."""

    def when_durable(self, then: Then) -> None:
        then("")


class WaitingAct(NamedTuple):
    connection: Connection | None
    act: Callable[[], None]


class AppliedAcks:
    def __init__(self, after: DurableAcks, proposed: Callable[[], int]) -> None:
        self._after = after
        self._proposed = proposed
        """The number of proposals of this node."""
        self._applied = 0
        self._applying = False
        self._waiting: dict[int, list[WaitingAct]] = {}
        """By the number of proposals that must be applied before."""
        self._last: dict[Connection, int] = {}
        """The number of each connection's last proposal, if it proposed anything."""
        self._pending: Counter[Connection] = Counter()

    def apply(self, act: Callable[[], None]) -> None:
        """Applies the next proposal of this node. Replies to it are next in order, whatever waits."""
        self._applying = True
        try:
            act()
        finally:
            self._applying = False
        self._applied += 1
        for connection, released in self._waiting.pop(self._applied, ()):
            if connection is None:
                released()
            elif self._pending[connection]:
                self._pending[connection] -= 1
                released()

    def note_proposed(self, connection: Connection) -> None:
        """The proposal that was made last is one of this connection."""
        self._last[connection] = self._proposed()

    def note(self, connection: Connection, first: int, count: int) -> None:
        if connection.subscriber.owner is not None:
            self._after.note(connection, first, count)

    def note_refused(self, connection: Connection, count: int) -> None:
        self._wait(connection, partial(self._after.note_refused, connection, count))

    def acknowledge(self, connection: Connection, ack: Ack) -> None:
        if connection.subscriber.owner is not None:
            self._wait(connection, partial(self._after.acknowledge, connection, ack))

    def reply(self, connection: Connection, data: bytes) -> None:
        if self._pending[connection]:
            self._wait(connection, partial(self._after.reply, connection, data))
        elif connection.subscriber.owner is not None:
            self._after.reply(connection, data)

    def close(self, connection: Connection, close: Callable[[], None]) -> None:
        if self._pending[connection]:
            connection.end_input()
            self._wait(connection, partial(self._after.close, connection, close))
        else:
            self._after.close(connection, close)

    def when_durable(self, then: Then) -> None:
        self._wait(None, partial(self._after.when_durable, then))

    def is_pending(self, connection: Connection) -> bool:
        return self._pending[connection] > 0 or self._after.is_pending(connection)

    def forget(self, connection: Connection) -> None:
        del self._pending[connection]
        self._last.pop(connection, None)
        self._after.forget(connection)

    def _wait(self, connection: Connection | None, act: Callable[[], None]) -> None:
        last = self._last.get(connection, 0) if connection else self._proposed()
        if self._applying or self._applied >= last:
            act()
            return
        if connection:
            self._pending[connection] += 1
        self._waiting.setdefault(last, []).append(WaitingAct(connection, act))
