"""The batches of `hermod`: several messages with one reply, and stages, whose rows a commit publishes as a batch.

    {"batch_type": "Count", "count": N}   {"batch_type": "Start"}   {"batch_type": "End"}
    {"batch_type": "Count", "count": N, "batch_id": I}
    {"batch_type": "Stage", "batch_id": I, "stage": S, "count": B, "payload_size": N, "checksum": sha1}PAYLOAD
    {"batch_type": "Commit", "batch_id": I, "stages": [S, ...], "count": R}
    {"batch_type": "Abort", "batch_id": I, "stages": [S, ...]}

A batch with a `batch_id` is atomic and idempotent: the session buffers it until the last message, and the broker
publishes it as a whole, once.

The payload of a stage is an Arrow IPC stream, which the session does not parse. `count` is optional: B is the
number of rows that were staged under that name before, R the number of rows of the whole batch. A stage belongs to
the identity that the peer has at its header.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from itertools import accumulate
from typing import Any, NamedTuple

from polycast.dialects.hermod.encoders import NAME, OK, to_error, to_ok
from polycast.dialects.hermod.headers import Header, HermodError, to_natural, to_size, to_text
from polycast.dialects.hermod.scan import UNCHECKED, Messages
from polycast.dialects.json_bodies import UNSET, shown
from polycast.errors import LimitError
from polycast.model import (
    CLIENT_BATCHES,
    Abort,
    BatchKey,
    Block,
    Burst,
    Commit,
    Format,
    Limits,
    PublishBatch,
    Stage,
)

NEEDS_THE_LOG = "%s needs the log"
"""The label of the metric."""
NEEDS_THE_LOG_HERE = NEEDS_THE_LOG + ", which this broker does not have; leave the key out"
NOT_DURABLE = "not stored: %s"
BATCH_ID_BYTES = 256
MESSAGE_BYTES = 100
"""The memory of a buffered message besides its topic and its payload."""


class BatchState(Enum):
    SINGLE = auto()
    COUNTING = auto()
    STREAMING = auto()


class MessageColumns:
    """Messages of a block, in columns."""

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.run_ends: list[int] = []
        self.starts, self.ends = array("q"), array("q")
        self.digests = bytearray()
        """The sha1 of each payload in hex digits; UNCHECKED where there is none."""

    @property
    def count(self) -> int:
        return len(self.starts)

    def add(self, topic: bytes, start: int, end: int, digest: bytes) -> None:
        if not self.topics or self.topics[-1] != topic:
            self.topics.append(topic)
            self.run_ends.append(len(self.starts))
        self.run_ends[-1] += 1
        self.starts.append(start)
        self.ends.append(end)
        self.digests += digest or UNCHECKED

    def extend(self, found: Messages) -> int:
        """Appends the messages of a scan; returns their number."""
        topics, run_ends, starts, ends, digests, *_ = found
        before = len(self.starts)
        if topics and self.topics[-1:] == topics[:1]:
            self.topics.pop()
            self.run_ends.pop()
        self.topics += topics
        self.run_ends += [before + end for end in run_ends] if before else run_ends
        self.starts.extend(starts)
        self.ends.extend(ends)
        self.digests += digests
        return len(starts)

    def to_burst(self, dialect: str, block: Block) -> Burst:
        formats = [Format.BYTES] * len(self.topics)
        digests = None if 0 in self.digests else self.digests
        return Burst(
            dialect, block, self.starts, self.ends, self.topics, formats, self.run_ends, digests=digests
        )  # fmt: skip


class Batch:
    """Messages with one reply. A refused batch is read to its end, and nothing of it is published."""

    buffered_bytes = 0

    def __init__(self, expected: int = sys.maxsize, error: tuple[int, str] | None = None) -> None:
        self.expected = expected
        self.accepted = 0
        self.error = error
        self.refused = error is not None

    # -- messages ----------------------------------------------------------------------------------------

    def check(self, topic: bytes, payload_bytes: int) -> None:
        """Raises LimitError if the batch has no room for a message that is still to come."""

    def add(self, topic: bytes, start: int, end: int, digest: bytes, columns: MessageColumns) -> None:
        """Adds one message, to the columns of the block unless this batch has its own."""
        if not self.refused:
            columns.add(topic, start, end, digest)

    def extend(self, found: Messages, columns: MessageColumns) -> int:
        """Adds the messages of a scan; returns their number."""
        return columns.extend(found)

    def accept(self, count: int) -> None:
        self.accepted += 0 if self.refused else count

    def refuse(self, code: int, message: str) -> None:
        """A message is bad. The first error is the reply to the batch."""
        self.error = self.error or (code, message)

    def buffer(self, block: Block) -> None:
        """Copies the messages of this block, which is about to be released."""

    # -- end ---------------------------------------------------------------------------------------------

    def to_event(self, block: Block) -> PublishBatch | None:
        """The whole batch, if it is atomic."""
        return None

    def reply(self) -> bytes:
        return to_error(*self.error, self.accepted) if self.error else to_ok(self.accepted)

    def to_failure(self, reason: str, durable: int) -> bytes:
        """The reply if not all accepted messages became durable."""
        return to_error(500, NOT_DURABLE % reason, min(durable, self.accepted)) if self.accepted else self.reply()


class BatchLimits(NamedTuple):
    """The limits of a batch with an id."""

    bytes: int
    topics: int


class AtomicBatch(Batch):
    """A batch with an id. Nothing is accepted before its end, so `accepted` stays 0."""

    def __init__(self, expected: int, batch: BatchKey, limits: BatchLimits) -> None:
        super().__init__(expected)
        self._batch = batch
        self._limits = limits
        self._topics: set[bytes] = set()
        self._columns = MessageColumns()
        """Messages of this block."""
        self._buffered = MessageColumns()
        """Messages of earlier blocks, with copied payloads."""
        self._payloads = bytearray()

    def check(self, topic: bytes, payload_bytes: int) -> None:
        if not self.refused:
            self._check(MESSAGE_BYTES + len(topic) + payload_bytes)

    def add(self, topic: bytes, start: int, end: int, digest: bytes, columns: MessageColumns) -> None:
        if not self.refused:
            self._check_topics((topic,))
            self.buffered_bytes += MESSAGE_BYTES + len(topic) + end - start
            self._columns.add(topic, start, end, digest)

    def extend(self, found: Messages, columns: MessageColumns) -> int:
        more = bytes_of(found)
        self._check(more)
        self._check_topics(found[0])
        self.buffered_bytes += more
        return self._columns.extend(found)

    def accept(self, count: int) -> None:
        pass

    def _check(self, more: int) -> None:
        size, limit = self.buffered_bytes + more, self._limits.bytes
        if size > limit:
            raise LimitError("an atomic batch", size, limit, "hermod.batch_bytes")

    def _check_topics(self, topics: Iterable[bytes]) -> None:
        self._topics.update(topics)
        count, limit = len(self._topics), self._limits.topics
        if count > limit:
            raise LimitError("the number of topics in an atomic batch", count, limit, "hermod.batch_topics")

    def refuse(self, code: int, message: str) -> None:
        super().refuse(code, message)
        self.refused = True
        self._clear()

    def buffer(self, block: Block) -> None:
        columns, self._columns = self._columns, MessageColumns()
        if not columns.count:
            return
        payloads = [block[start:end] for start, end in zip(columns.starts, columns.ends, strict=True)]
        edges = array("q", accumulate(map(len, payloads), initial=len(self._payloads)))
        self._payloads += b"".join(payloads)
        self._buffered.extend((columns.topics, columns.run_ends, edges[:-1], edges[1:], columns.digests, 0, 0))

    def to_event(self, block: Block) -> PublishBatch | None:
        """A batch that arrived in one block is not copied."""
        if self.refused:
            return None
        if self._buffered.count:
            self.buffer(block)
            burst = self._buffered.to_burst(NAME, self._payloads)
        else:
            burst = self._columns.to_burst(NAME, block)
        self._clear()
        return PublishBatch(burst, self._batch, to_ok, _to_batch_failure, _to_batch_error)

    def _clear(self) -> None:
        self._columns, self._buffered, self._payloads = MessageColumns(), MessageColumns(), bytearray()
        self._topics = set()
        self.buffered_bytes = 0


def _to_batch_failure(reason: str, durable: int) -> bytes:
    return to_error(500, NOT_DURABLE % reason, 0)


def _to_batch_error(code: int, message: str) -> bytes:
    return to_error(code, message, 0)


def bytes_of(found: Messages) -> int:
    """The memory to buffer the messages of a scan."""
    topics, run_ends, starts, ends, *_ = found
    runs = zip(topics, run_ends, [0, *run_ends], strict=False)
    names = sum([len(topic) * (end - start) for topic, end, start in runs])
    return MESSAGE_BYTES * len(starts) + names + sum(ends) - sum(starts)


def to_batch(header: Header, count: int, has_log: bool, limits: BatchLimits, owner: str) -> Batch:
    """The batch that a `Count` starts; `owner` is the identity of the publisher."""
    if header.batch_id is UNSET:
        return Batch(count)
    if not has_log:
        return Batch(count, (501, NEEDS_THE_LOG_HERE % "batch_id"))
    batch_id = to_batch_id(header.batch_id)
    by_client = batch_id.startswith(CLIENT_BATCHES)  # they do not displace ids that an application chose
    batch = BatchKey(f"{owner}/{CLIENT_BATCHES}" if by_client else owner, batch_id)
    return AtomicBatch(count, batch, limits) if count else Batch(0)


def to_stream(header: Header, has_log: bool) -> Batch:
    """The batch that a `Start` starts."""
    if header.batch_id is UNSET:
        return Batch()
    if not has_log:
        return Batch(error=(501, NEEDS_THE_LOG_HERE % "batch_id"))
    raise HermodError(400, "batch_id needs Count: start the batch with its count, or leave the key out")


def to_batch_id(value: object) -> str:
    size = len(value.encode()) if isinstance(value, str) else 0
    if not isinstance(value, str) or not 0 < size <= BATCH_ID_BYTES:
        found = f"has {size:,} bytes" if size else f"is {shown(value)}"
        raise HermodError(400, f"batch_id {found}, expected a string of 1 to {BATCH_ID_BYTES} bytes")
    return value


# -- stages ----------------------------------------------------------------------------------------------

STAGES_NEED_THE_LOG = "a stage needs the log"
STAGES_REFUSED = STAGES_NEED_THE_LOG + ", which this broker does not have; start it without --no-log"
NAME_BYTES = 256
SPARE_BYTES = 64 * 1024
"""The room in a frame besides one payload and its topic."""


def to_frame_limits(limits: Limits) -> Limits:
    """Any message that can be published can be staged."""
    return Limits(limits.payload_bytes + limits.topic_bytes + SPARE_BYTES, limits.topic_bytes, limits.line_bytes)


def frame_size(header: Header, limits: Limits) -> int:
    """The payload size of a stage. Raises before the payload is read if the header is bad."""
    _to_name(header.stage, "stage")
    to_batch_id(header.batch_id)
    to_text(header.checksum, "checksum")
    _to_count(header)
    return to_size(header.payload_size, to_frame_limits(limits))


def to_stage(header: Header, data: bytes, unchecked: bool, owner: str) -> Stage | Abort:
    """A frame without a required checksum drops its stage."""
    batch, name = BatchKey(owner, to_batch_id(header.batch_id)), _to_name(header.stage, "stage")
    checksum = to_text(header.checksum, "checksum").lower()
    if not checksum and not unchecked:
        required = to_error(422, "a checksum is required here (hermod.require_checksum)")
        return Abort(batch, (name,), required, to_error)
    return Stage(batch, name, data, checksum, _to_count(header), to_ok, to_error)


def to_commit(header: Header, owner: str) -> Commit:
    names = _to_names(header.stages)
    batch = BatchKey(owner, to_batch_id(header.batch_id))
    return Commit(batch, names, _to_count(header), to_ok, _to_batch_failure, to_error)


def to_abort(header: Header, owner: str) -> Abort:
    names = None if header.stages is UNSET else _to_names(header.stages)
    return Abort(BatchKey(owner, to_batch_id(header.batch_id)), names, OK, to_error)


def _to_count(header: Header) -> int | None:
    return None if header.count is UNSET else to_natural(header.count, "count")


def _to_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise HermodError(400, f"stages is {shown(value)}, expected a list of strings")
    names = tuple(_to_name(name, "one of the stages") for name in value)
    for name, times in Counter(names).items():
        if times > 1:
            raise HermodError(400, f"the stage {shown(name)} is named twice; its rows can be in a batch once")
    return names


def _to_name(value: Any, key: str) -> str:
    size = len(value.encode()) if isinstance(value, str) else 0
    if not isinstance(value, str) or not 0 < size <= NAME_BYTES:
        found = f"has {size:,} bytes" if size else f"is {shown(value)}"
        raise HermodError(400, f"{key} {found}, expected a string of 1 to {NAME_BYTES} bytes")
    return value
