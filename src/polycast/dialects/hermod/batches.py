"""The batches of `hermod`: several messages that get one reply.

One with a `batch_id` is atomic: its messages are gathered until the last one has come, and are published together
or not at all. Whoever keeps the log sees to it that they are published once only.
"""

from __future__ import annotations

import sys
from array import array
from enum import Enum, auto
from itertools import accumulate

from polycast.dialects.hermod.columns import Columns
from polycast.dialects.hermod.encoders import NAME, to_error, to_ok
from polycast.dialects.hermod.headers import Header, HermodError
from polycast.dialects.hermod.scan import Messages
from polycast.dialects.json_values import UNSET, shown
from polycast.errors import LimitError
from polycast.model import BatchKey, Block, PublishBatch

NEEDS_THE_LOG = "%s needs the log"
"""What it is counted under."""
NEEDS_THE_LOG_HERE = NEEDS_THE_LOG + ", which this broker does not have; leave the key out"
NOT_STORED = "not stored: %s"
BATCH_ID_BYTES = 256
MESSAGE_BYTES = 100
"""What a message that is gathered costs beside its topic and its payload."""


class State(Enum):
    SINGLE = auto()
    COUNTING = auto()
    STREAMING = auto()


class Batch:
    """A refused one is read to its end, and none of it is published."""

    buffered_bytes = 0

    def __init__(self, expected: int = sys.maxsize, error: tuple[int, str] | None = None) -> None:
        self.expected = expected
        self.accepted = 0
        self.error = error
        self.refused = error is not None

    # -- its messages ------------------------------------------------------------------------------------

    def check(self, topic: bytes, payload_bytes: int) -> None:
        """Raises where there is no room for a message that has yet to come."""

    def add(self, topic: bytes, start: int, end: int, digest: bytes, columns: Columns) -> None:
        """One message, which goes to the columns of the read unless this batch has its own."""
        if not self.refused:
            columns.add(topic, start, end, digest)

    def extend(self, found: Messages, columns: Columns) -> int:
        """All that a scan found; returns how many that were."""
        return columns.extend(found)

    def accept(self, count: int) -> None:
        self.accepted += 0 if self.refused else count

    def refuse(self, code: int, message: str) -> None:
        """One of its messages is bad. The first error is the batch's reply."""
        self.error = self.error or (code, message)

    def keep(self, block: Block) -> None:
        """The read ends, and with it the block."""

    # -- its end -----------------------------------------------------------------------------------------

    def to_once(self, block: Block) -> PublishBatch | None:
        """All of it, where it is to be published now and only now."""
        return None

    def reply(self) -> bytes:
        return to_error(*self.error, self.accepted) if self.error else to_ok(self.accepted)

    def to_failure(self, reason: str, kept: int) -> bytes:
        """The reply if the log could not keep all of what was accepted."""
        return to_error(500, NOT_STORED % reason, min(kept, self.accepted)) if self.accepted else self.reply()


class WholeBatch(Batch):
    """One with an id. Nothing is accepted before the end, so `accepted` stays 0."""

    def __init__(self, expected: int, batch: BatchKey, limit_bytes: int) -> None:
        super().__init__(expected)
        self._batch = batch
        self._limit_bytes = limit_bytes
        self._columns = Columns()
        """What came in this read."""
        self._kept = Columns()
        """What came before it, in a block of its own."""
        self._payloads = bytearray()

    def check(self, topic: bytes, payload_bytes: int) -> None:
        if not self.refused:
            self._check(MESSAGE_BYTES + len(topic) + payload_bytes)

    def add(self, topic: bytes, start: int, end: int, digest: bytes, columns: Columns) -> None:
        if not self.refused:
            self.buffered_bytes += MESSAGE_BYTES + len(topic) + end - start
            self._columns.add(topic, start, end, digest)

    def extend(self, found: Messages, columns: Columns) -> int:
        more = bytes_of(found)
        self._check(more)
        self.buffered_bytes += more
        return self._columns.extend(found)

    def accept(self, count: int) -> None:
        pass

    def _check(self, more: int) -> None:
        size, limit = self.buffered_bytes + more, self._limit_bytes
        if size > limit:
            raise LimitError("an atomic batch", size, limit, "hermod.batch_bytes")

    def refuse(self, code: int, message: str) -> None:
        super().refuse(code, message)
        self.refused = True
        self._forget()

    def keep(self, block: Block) -> None:
        came, self._columns = self._columns, Columns()
        if not came.count:
            return
        payloads = [block[start:end] for start, end in zip(came.starts, came.ends, strict=True)]
        edges = array("q", accumulate(map(len, payloads), initial=len(self._payloads)))
        self._payloads += b"".join(payloads)
        self._kept.extend((came.topics, came.run_ends, edges[:-1], edges[1:], came.digests, 0))

    def to_once(self, block: Block) -> PublishBatch | None:
        """A batch that came in one read is never copied."""
        if self.refused:
            return None
        if self._kept.count:
            self.keep(block)
            burst = self._kept.to_burst(NAME, self._payloads)
        else:
            burst = self._columns.to_burst(NAME, block)
        self._forget()
        return PublishBatch(burst, self._batch, to_ok, _refuse_whole, _deny_whole)

    def _forget(self) -> None:
        self._columns, self._kept, self._payloads = Columns(), Columns(), bytearray()
        self.buffered_bytes = 0


def _refuse_whole(reason: str, kept: int) -> bytes:
    return to_error(500, NOT_STORED % reason, 0)


def _deny_whole(code: int, message: str) -> bytes:
    return to_error(code, message, 0)


def bytes_of(found: Messages) -> int:
    """What it costs to gather all that a scan found."""
    topics, run_ends, starts, ends, _, _ = found
    runs = zip(topics, run_ends, [0, *run_ends], strict=False)
    names = sum([len(topic) * (end - start) for topic, end, start in runs])
    return MESSAGE_BYTES * len(starts) + names + sum(ends) - sum(starts)


def to_batch(header: Header, count: int, kept: bool, limit_bytes: int, owner: str) -> Batch:
    """The batch that a `Count` begins; `kept` says whether there is a log, `owner` who sends it."""
    if header.batch_id is UNSET:
        return Batch(count)
    if not kept:
        return Batch(count, (501, NEEDS_THE_LOG_HERE % "batch_id"))
    batch = BatchKey(owner, to_batch_id(header.batch_id))
    return WholeBatch(count, batch, limit_bytes) if count else Batch(0)


def to_stream(header: Header, kept: bool) -> Batch:
    """The batch that a `StartPosition` begins."""
    if header.batch_id is UNSET:
        return Batch()
    if not kept:
        return Batch(error=(501, NEEDS_THE_LOG_HERE % "batch_id"))
    raise HermodError(400, "batch_id needs Count: begin the batch with its count, or leave the key out")


def to_batch_id(value: object) -> str:
    size = len(value.encode()) if isinstance(value, str) else 0
    if not isinstance(value, str) or not 0 < size <= BATCH_ID_BYTES:
        found = f"has {size:,} bytes" if size else f"is {shown(value)}"
        raise HermodError(400, f"batch_id {found}, expected a string of 1 to {BATCH_ID_BYTES} bytes")
    return value
