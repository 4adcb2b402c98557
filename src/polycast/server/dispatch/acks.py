"""What waits for the log: answers that promise that something is kept, and deliveries where only that counts.

Everything waits in one line, by offset: the log announces in that order. A connection's answers keep their order:
behind one that waits, all wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from polycast.broker import Publication
from polycast.log.durable import Durable
from polycast.log.times import to_micros
from polycast.model import Ack, BatchKey
from polycast.server.io.connection import Connection

if TYPE_CHECKING:
    from polycast.log.log import Log

Then = Callable[[str], None]
"""What to do when it is durable; with why it was not kept, or an empty text."""


class Waiting(NamedTuple):
    next: int
    """Everything before this offset must be durable or lost."""
    then: Then


BEHIND = Durable(-1, 0, "the log is behind")
"""What got no offset."""


class Keeping:
    def __init__(self, log: Log, send: Callable[[Connection, bytes], None]) -> None:
        self.log = log
        self._send = send
        self._line: deque[Waiting] = deque()
        self._published: dict[Connection, list[tuple[int, int]]] = {}
        """What a connection that is answered has published since its last answer: offsets and counts."""
        self._owed: Counter[Connection] = Counter()
        self._lost: list[Durable] = []

    def keep(
        self, publication: Publication, source: str, now: float, batch: BatchKey | None = None, count: int = 0
    ) -> None:
        if publication.bursts:
            self.log.append(publication.bursts, source, self.micros(now), batch, count)

    def micros(self, now: float) -> int:
        """Never earlier than the last message in the log."""
        return max(self.log.micros, to_micros(now))

    def note(self, connection: Connection, publication: Publication) -> None:
        """This connection will be told what became of it."""
        published = self._published.setdefault(connection, [])
        published += [(burst.offset, len(burst)) for burst in publication.bursts]

    def note_again(self, connection: Connection, first: int, count: int) -> None:
        """The same for what was published before: it may not be durable yet."""
        self._published.setdefault(connection, []).append((first, count))

    def refuse(self, connection: Connection, count: int) -> None:
        """So many got no offset. That takes more messages at a time than anybody has memory for."""
        if connection.session.acknowledges:
            self._published.setdefault(connection, []).append((BEHIND.first, count))
            self._lost.insert(0, BEHIND)

    def answer(self, connection: Connection, receipt: Ack) -> None:
        """In its turn, when all that it is about is durable."""
        published = self._published.pop(connection, [])
        self._owed[connection] += 1
        self.when_durable(lambda reason: self._answer(connection, receipt, published))

    def reply(self, connection: Connection, data: bytes) -> None:
        """Not before the answers that it owes already."""
        if not self._owed[connection]:
            self._send(connection, data)
            return
        self._owed[connection] += 1
        self.when_durable(lambda reason: self._pay(connection, data))

    def end(self, connection: Connection, act: Callable[[], None]) -> None:
        """`act` comes when everything is answered that was asked before."""
        self._owed[connection] += 1
        self.when_durable(lambda reason: self._end_debt(connection, act))

    def when_durable(self, then: Then) -> None:
        """When everything that has an offset now is durable or lost."""
        if self.log.durable_next >= self.log.next and not self._line:
            then("")
        else:
            self._line.append(Waiting(self.log.next, then))

    def owes(self, connection: Connection) -> bool:
        return self._owed[connection] > 0

    def forget(self, connection: Connection) -> None:
        self._published.pop(connection, None)
        del self._owed[connection]

    def on_durable(self, durable: Durable) -> None:
        if durable.reason:
            self._lose(durable)
        while self._line and self._line[0].next <= durable.next:
            self._line.popleft().then(durable.reason)
        if self._lost and not self._line and not self._published:
            self._lost.clear()

    def _lose(self, lost: Durable) -> None:
        if self._lost and self._lost[-1].next == lost.first:
            lost = self._lost.pop()._replace(next=lost.next, reason=lost.reason)
        self._lost.append(lost)

    def _answer(self, connection: Connection, receipt: Ack, published: list[tuple[int, int]]) -> None:
        if not self._lost:
            self._pay(connection, receipt.data)
            return
        kept, reason = 0, ""
        for offset, count in published:
            lost = next((each for each in self._lost if each.first <= offset < each.next), None)
            kept += 0 if lost else count
            reason = lost.reason if lost else reason
        self._pay(connection, receipt.to_failure(reason, kept) if reason else receipt.data)

    def _pay(self, connection: Connection, data: bytes) -> None:
        self._end_debt(connection, lambda: self._send(connection, data))

    def _end_debt(self, connection: Connection, act: Callable[[], None]) -> None:
        """One less is owed, and that is done; unless nobody is there any more."""
        if self._owed[connection]:
            self._owed[connection] -= 1
            act()
