"""The outbox: blocks for connections, gathered in one turn of the event loop. Each connection is flushed once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from polycast.broker import Delivery
from polycast.declare import Histogram
from polycast.model import Encoded, Encoder, Slices
from polycast.model.burst import Burst, count_messages
from polycast.routing import Audience, Router, Subscriber
from polycast.server.io.connection import Connection

SCATTERED_MEMBERS = 4
"""For more subscribers, blocks are joined once: each call to send takes time for each block."""


class SilentEncoder(Encoder):
    """The encoder of a subscription that is served from the log: its live messages come from there as well."""

    name = "silent"
    takes_precedence = True

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        return Encoded([], 0)


SILENT = SilentEncoder()


class Outbox:
    def __init__(self, router: Router) -> None:
        self._router = router
        self._touched: dict[Connection, None] = {}
        self.awaits_reply: Callable[[Connection], bool] = lambda connection: False
        """Whether a connection has replies or acknowledgements to come."""
        self.read_at = 0.0
        """When the broker read the input of this turn, on the monotonic clock; 0: no turn."""
        self._delivered = 0
        """Messages delivered to at least one subscriber in this turn."""
        self.delays = Histogram()
        """From the read of a message to its delivery."""

    # -- turns -------------------------------------------------------------------------------------------

    def begin_turn(self, read_at: float) -> None:
        self.read_at = read_at
        self._delivered = 0

    def end_turn(self) -> None:
        self.flush()
        if self._delivered:
            self.delays.add(time.monotonic() - self.read_at, self._delivered)
        self.read_at = 0.0

    def flush(self) -> None:
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.queue.flush()

    # -- messages ----------------------------------------------------------------------------------------

    def deliver(self, deliveries: list[Delivery], committed: bool = False) -> None:
        """To subscribers that get messages at once, or to those with committed delivery."""
        touched = self._touched
        for audience, burst, slices, skip in deliveries:
            groups = audience.committed if committed else audience.live
            if not groups:
                continue
            count = count_messages(slices)
            self._delivered += count
            for encoder, members in groups:
                if encoder is SILENT or (len(members) == 1 and _is_spilled(members[0])):
                    continue
                blocks, size, lossy = encoder.encode(burst, slices)
                if len(blocks) > 1 and len(members) > SCATTERED_MEMBERS:
                    blocks = [b"".join(blocks)]
                for member in members:
                    if member is not skip and member.owner is not None:
                        connection: Connection = member.owner
                        touched[connection] = None
                        connection.queue.push(blocks, size, count)
                        if lossy:
                            connection.listener.counters.lossy += lossy

    def deliver_held(self, deliveries: list[Delivery], read_at: float) -> None:
        """Messages that waited to be durable. A subscriber may have left since, or read them from the log."""
        before = self._delivered
        for delivery in deliveries:
            self._deliver_to_current(delivery)
        if count := self._delivered - before:
            self.delays.add(time.monotonic() - read_at, count)
            self._delivered = before

    def _deliver_to_current(self, delivery: Delivery) -> None:
        audience, burst, slices, skip = delivery
        topics = {burst.topics[run] for run, _, _ in burst.runs(slices)}
        if all(self._router.audience(topic) is audience for topic in topics):
            self.deliver([delivery], committed=True)
            return
        members = {member for member, _ in audience.members}
        for run, start, stop in burst.runs(slices):
            current = self._router.audience(burst.topics[run])
            both = frozenset((member, encoder) for member, encoder in current.members if member in members)
            self.deliver([Delivery(Audience(both), burst, [(start, stop)], skip)], committed=True)

    # -- replies -----------------------------------------------------------------------------------------

    def send(self, connection: Connection, data: bytes) -> None:
        """Bytes for this connection alone."""
        self.send_blocks(connection, (data,) if data else ())

    def send_blocks(self, connection: Connection, blocks: Sequence[bytes]) -> None:
        self.touch(connection)
        if blocks:
            connection.queue.push(blocks, sum(map(len, blocks)), 0)

    def send_reply(self, connection: Connection, data: bytes) -> None:
        """`send`, then `close_if_done`."""
        self.send(connection, data)
        self.close_if_done(connection)

    def close_if_done(self, connection: Connection) -> None:
        """A connection whose input has ended closes after its last reply."""
        if connection.input_ended and not self.awaits_reply(connection):
            connection.close()

    def touch(self, connection: Connection) -> None:
        self._touched[connection] = None

    def forget(self, connection: Connection) -> None:
        self._touched.pop(connection, None)


def _is_spilled(member: Subscriber) -> bool:
    """Encoding for a single subscriber that reads from the log would be wasted."""
    return member.owner is not None and member.owner.queue.spilled
