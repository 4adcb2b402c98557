"""Acknowledgements: replies that wait until the messages before them are durable.

Replies to one connection keep their order: while one waits, all later ones wait. Without a log every message
counts as acknowledged at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from polycast.model import Ack
from polycast.server.io.connection import Connection

if TYPE_CHECKING:
    from polycast.log.durable import Durable
    from polycast.log.log import Log

Send = Callable[[Connection, bytes], None]
Then = Callable[[str], None]
"""Called with the reason why a message is not durable, or with an empty text."""

LOG_BEHIND = "the log is behind"
"""The reason in metrics."""
TOO_MUCH_WAITS = (
    f"{LOG_BEHIND}: too much waits for the disk, or in a cluster for its servers (cluster.pending_bytes); "
    "send it again later"
)


class Lost(NamedTuple):
    first: int
    next: int
    reason: str


NO_OFFSET = Lost(-1, 0, TOO_MUCH_WAITS)
"""Messages that got no offset."""


class Acks(Protocol):
    def note(self, connection: Connection, first: int, count: int) -> None:
        """The next ack of this connection covers these messages."""
        ...

    def note_refused(self, connection: Connection, count: int) -> None:
        """The next ack of this connection reports messages that got no offset."""
        ...

    def acknowledge(self, connection: Connection, ack: Ack) -> None: ...

    def reply(self, connection: Connection, data: bytes) -> None:
        """Sends a reply after all earlier ones."""
        ...

    def close(self, connection: Connection, close: Callable[[], None]) -> None:
        """Calls `close` after the last reply."""
        ...

    def when_durable(self, then: Then) -> None:
        """Calls `then` when every message applied so far is durable or lost."""
        ...

    def is_pending(self, connection: Connection) -> bool: ...
    def forget(self, connection: Connection) -> None: ...


class ImmediateAcks:
    """For a broker without a log."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def note(self, connection: Connection, first: int, count: int) -> None:
        pass

    def note_refused(self, connection: Connection, count: int) -> None:
        pass

    def acknowledge(self, connection: Connection, ack: Ack) -> None:
        self._send(connection, ack.data)

    def reply(self, connection: Connection, data: bytes) -> None:
        self._send(connection, data)

    def close(self, connection: Connection, close: Callable[[], None]) -> None:
        close()

    def when_durable(self, then: Then) -> None:
        then("")

    def is_pending(self, connection: Connection) -> bool:
        return False

    def forget(self, connection: Connection) -> None:
        pass


class Waiting(NamedTuple):
    next: int
    """Every message before this offset must be durable or lost."""
    then: Then


class DurableAcks:
    def __init__(self, log: Log, send: Send) -> None:
        self._log = log
        self._send = send
        self._queue: deque[Waiting] = deque()
        """By offset; the log reports in that order."""
        self._published: dict[Connection, list[tuple[int, int]]] = {}
        """First offset and count of the messages that the next ack of a connection covers."""
        self._pending: Counter[Connection] = Counter()
        """Replies that wait."""
        self._lost: list[Lost] = []

    def note(self, connection: Connection, first: int, count: int) -> None:
        self._published.setdefault(connection, []).append((first, count))

    def note_refused(self, connection: Connection, count: int) -> None:
        self.note(connection, NO_OFFSET.first, count)
        self._lost.insert(0, NO_OFFSET)

    def acknowledge(self, connection: Connection, ack: Ack) -> None:
        published = self._published.pop(connection, [])
        self._pending[connection] += 1
        self.when_durable(lambda reason: self._acknowledge(connection, ack, published))

    def reply(self, connection: Connection, data: bytes) -> None:
        if not self._pending[connection]:
            self._send(connection, data)
            return
        self._pending[connection] += 1
        self.when_durable(lambda reason: self._send_pending(connection, data))

    def close(self, connection: Connection, close: Callable[[], None]) -> None:
        if not self.is_pending(connection):
            close()
            return
        connection.end_input()
        self._pending[connection] += 1
        self.when_durable(lambda reason: self._finish(connection, close))

    def when_durable(self, then: Then) -> None:
        if self._log.durable_next >= self._log.next and not self._queue:
            then("")
        else:
            self._queue.append(Waiting(self._log.next, then))
            self._log.hurry()

    def is_pending(self, connection: Connection) -> bool:
        return self._pending[connection] > 0

    def forget(self, connection: Connection) -> None:
        self._published.pop(connection, None)
        del self._pending[connection]

    def release(self, durable: Durable) -> None:
        """Sends what waited for these offsets."""
        if durable.reason:
            self._note_lost(Lost(*durable))
        while self._queue and self._queue[0].next <= durable.next:
            self._queue.popleft().then(durable.reason)
        if self._lost and not self._queue and not self._published:
            self._lost.clear()

    def _note_lost(self, lost: Lost) -> None:
        if self._lost and self._lost[-1].next == lost.first:
            lost = self._lost.pop()._replace(next=lost.next, reason=lost.reason)
        self._lost.append(lost)

    def _acknowledge(self, connection: Connection, ack: Ack, published: list[tuple[int, int]]) -> None:
        if not self._lost:
            self._send_pending(connection, ack.data)
            return
        durable, reason = 0, ""
        for first, count in published:
            lost = next((each for each in self._lost if each.first <= first < each.next), None)
            durable += 0 if lost else count
            reason = lost.reason if lost else reason
        self._send_pending(connection, ack.to_failure(reason, durable) if reason else ack.data)

    def _send_pending(self, connection: Connection, data: bytes) -> None:
        self._finish(connection, lambda: self._send(connection, data))

    def _finish(self, connection: Connection, act: Callable[[], None]) -> None:
        """One reply less waits; a connection that has closed gets nothing."""
        if self._pending[connection]:
            self._pending[connection] -= 1
            act()
