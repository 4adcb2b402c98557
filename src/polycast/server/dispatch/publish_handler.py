"""Publishing for connections: rights, rates and limits first (propose), then counters and acknowledgements."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from polycast.broker.hub import parts_where
from polycast.errors import ForbiddenError
from polycast.log.batch_ids import COUNT_MISMATCH
from polycast.model import Ack, BatchKey, Burst, PublishBatch
from polycast.server.dispatch.acks import LOG_BEHIND, Acks
from polycast.server.dispatch.publisher import FORWARD_BATCH_LIMIT, Published, Publisher, Then
from polycast.server.dispatch.refusals import FORBIDDEN, Refusals
from polycast.server.io.connection import Connection
from polycast.server.io.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from polycast.log.write.bulk import Bulk

NOT_UTF8 = "topic not UTF-8"
OTHER_COUNT = "batch id with another count"
TOO_MANY = "batch too large to forward"


class PublishHandler:
    def __init__(self, publisher: Publisher, acks: Acks, refusals: Refusals, rates: RateLimiter | None) -> None:
        self._publisher = publisher
        self._acks = acks
        self._refusals = refusals
        self.rates = rates
        """None: no rate limit."""
        self.on_burst: Callable[[Burst, float], None] | None = None
        """Called with every burst of a connection."""

    @property
    def slowed(self) -> int:
        """How often a connection was paused by a rate limit."""
        return self.rates.waits if self.rates else 0

    def publish(self, connection: Connection, burst: Burst, now: float) -> None:
        if connection.guard.restricted and (forbidden := _first_forbidden(connection, burst)) is not None:
            self._publish_allowed(connection, burst, forbidden, now)
        else:
            self._propose(connection, burst, now, None, partial(self._count, connection))

    def publish_batch(self, connection: Connection, event: PublishBatch, now: float) -> None:
        """All of it or nothing; the rights may have changed since the first message was read."""
        if connection.guard.restricted and _first_forbidden(connection, event.burst) is not None:
            self._refusals.refuse(connection, FORBIDDEN)
            self._acks.reply(connection, event.to_error(403, FORBIDDEN))
        elif self._publisher.forwards and len(event.burst) > FORWARD_BATCH_LIMIT:
            self._refusals.refuse(connection, TOO_MANY)
            self._acks.reply(connection, event.to_error(422, _too_many(len(event.burst))))
        elif not self._propose(
            connection, event.burst, now, event.batch, partial(self._acknowledge_batch, connection, event)
        ):
            self._acks.acknowledge(connection, Ack(b"", event.to_failure))

    def _acknowledge_batch(self, connection: Connection, event: PublishBatch, published: Published) -> None:
        count = len(event.burst)
        known = published.applied.known if published.applied else None
        if known and known.count != count:
            self._refusals.refuse(connection, OTHER_COUNT)
            self._acks.reply(connection, event.to_error(422, COUNT_MISMATCH % known.mismatch(event.batch, count)))
            return
        if known:
            self._acks.note(connection, known.first, known.count)
        else:
            self._count(connection, published)
        self._acks.acknowledge(connection, Ack(event.to_ack(count), event.to_failure))

    def _propose(
        self, connection: Connection, burst: Burst, now: float, batch: BatchKey | None, then: Then
    ) -> bool:
        """False: the log has no room. The next reply to the connection is the error."""
        if self.rates:  # only rate limits need the sums, which cost more than the rest of a large burst
            self.rates.charge(connection, len(burst), sum(burst.ends) - sum(burst.starts))
        if not self._publisher.has_room(len(burst)):
            if connection.session.acknowledges:
                self._acks.note_refused(connection, len(burst))
            self._refusals.refuse(connection, LOG_BEHIND, len(burst))
            return False
        self._publisher.publish(burst, connection.subscriber, connection.name, now, batch, then)
        if self.on_burst:
            self.on_burst(burst, now)
        return True

    def publish_bulk(self, connection: Connection, bulk: Bulk, size: int, batch: BatchKey, then: Then) -> None:
        """Rows whose rights were checked."""
        self.charge(connection, sum(bulk.counts), size)
        self._publisher.publish_bulk(bulk, connection.name, time.time(), batch, then)

    def publish_message(self, connection: Connection, burst: Burst, now: float, then: Then) -> None:
        """A message by request; its right was checked. It comes from the broker, so the requester gets it too."""
        self.charge(connection, len(burst), len(burst.block))
        count_in(connection, len(burst))
        self._publisher.publish_own(burst, now, then, connection.name)

    def charge(self, connection: Connection, messages: int, size: int) -> None:
        if self.rates:
            self.rates.charge(connection, messages, size)

    def _count(self, connection: Connection, published: Published) -> None:
        count_in(connection, published.accepted)
        if published.unreadable:
            self._refusals.refuse(connection, NOT_UTF8, published.unreadable)
        if published.applied and connection.session.acknowledges:
            for burst in published.applied.proposal.bursts:
                self._acks.note(connection, burst.offset, len(burst))

    def _publish_allowed(self, connection: Connection, burst: Burst, forbidden: int, now: float) -> None:
        """Closes a client at the first message that it may not publish.

        Another broker does not know the rules here: its forbidden messages are refused, and the link stays.
        """
        topic = burst.topics[bisect_right(burst.run_ends, forbidden)].decode(errors="replace")
        if connection.subscriber.link or connection.dialed:
            allowed = parts_where(burst, connection.guard.may_publish)
            for part in allowed:
                self.publish(connection, part, now)
            detail = connection.guard.denial_text("publish to", topic)
            self._refusals.refuse(connection, ForbiddenError.kind, len(burst) - sum(map(len, allowed)), detail)
            return
        connection.log_denial("publish to", topic)
        if forbidden:
            self.publish(connection, burst.cut(0, forbidden), now)
        error = ForbiddenError()
        self._acks.close(connection, lambda: connection.fail(error))


def _too_many(count: int) -> str:
    return (
        f"the batch has {count:,} messages, the limit is {FORWARD_BATCH_LIMIT:,} on a broker that forwards "
        "(simplest.forward); send smaller batches, or use a broker without it"
    )


def _first_forbidden(connection: Connection, burst: Burst) -> int | None:
    """The index of the first message that this connection may not publish."""
    for run, topic in enumerate(burst.topics):
        if not connection.guard.may_publish(topic):
            return burst.run_ends[run - 1] if run else 0
    return None


def count_in(connection: Connection, messages: int) -> None:
    connection.listener.counters.messages_in += messages
    connection.messages_in += messages
