"""What `hermod` sends: status lines, responses, and messages with their sequence and their sha1.

    {"topic": T, "sequence": S, "payload_size": N, "checksum": sha1}PAYLOAD
    {"topic": T, "sequence": S, "offset": O, "time": microseconds, "payload_size": N, "checksum": sha1}PAYLOAD

The second form is for subscribers that request offsets. Most subscribers share one of two encoders. A subscriber
with a `window` or a `batch` has its own, which withholds messages until the window has room:

    {"batch_type": "Count", "count": K}   K messages, which one OK acknowledges

The response to a request:

    {"status": "OK", "id": I, "format": F, "payload_size": N}PAYLOAD LF
    {"status": "ERROR", "id": I, "code": C, "message": M} LF
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

import msgspec

from polycast.dialects.failure_codes import code_of
from polycast.dialects.framing import SHARE_TO_PIN
from polycast.dialects.hermod.scan import Quote, digests, each_frame, frames, scattered_frames
from polycast.model import Block, Body, Burst, Encoded, Encoder, Slices
from polycast.model.burst import count_messages, edges_of

NAME = "hermod"
OK = b'{"status": "OK"}\n'
MISSED = 410
"""The code of a notice about missing messages."""
SCATTERED_BYTES = 8 * 1024
"""Payloads of at least this size, in the mean, are not copied."""


def to_ok(count: int) -> bytes:
    return b'{"status": "OK", "count": %d}\n' % count


def to_handshake_ok(log_id: str, log_next: int) -> bytes:
    """For a subscriber that requests offsets: the id of the log and its end, where live messages begin."""
    return b'{"status": "OK", "log": "%b", "next": %d}\n' % (log_id.encode(), log_next)


def to_greeting(log_id: str, batch_ids: int) -> bytes:
    """For a publisher that requests offsets."""
    return b'{"status": "OK", "count": 0, "log": "%b", "batch_ids": %d}\n' % (log_id.encode(), batch_ids)


def to_error(code: int, message: str, count: int | None = None) -> bytes:
    """`count` is the number of accepted messages of a batch."""
    tail = b"" if count is None else b', "count": %d' % count
    return b'{"status": "ERROR", "code": %d, "message": %b%b}\n' % (code, msgspec.json.encode(message), tail)


def to_miss(first: int, after: int, cause: str) -> bytes:
    """The notice in place of messages that the log cannot deliver."""
    text = f"the messages from offset {first:,} up to {after:,} cannot be delivered: {cause}"
    head = b'{"status": "ERROR", "code": %d, "message": %b, "first": %d, "next": %d}\n'
    return head % (MISSED, msgspec.json.encode(text), first, after)


def to_response(number: int, success: bool, body: Body) -> bytes:
    return b"".join(response_blocks(number, success, body))


def response_blocks(number: int, success: bool, body: Body) -> tuple[bytes, ...]:
    """The body is a block of its own, and not copied."""
    if success:
        head = b'{"status": "OK", "id": %d, "format": "%b", "payload_size": %d}'
        return head % (number, body.format.encode(), len(body.payload)), body.payload, b"\n"
    message = body.payload.decode(errors="replace")
    code = code_of(message)
    head = b'{"status": "ERROR", "id": %d, "code": %d, "message": %b}\n'
    return (head % (number, code, msgspec.json.encode(message)),)


def digests_of(burst: Burst) -> Block:
    """The sha1 of each payload, computed once for each burst."""
    if burst.digests is None:
        burst.digests = digests(burst.block, to_array(burst.starts), to_array(burst.ends))
    return burst.digests


def _quote(topic: bytes) -> bytes:
    return msgspec.json.encode(topic.decode())


Columns = tuple[
    Block, Sequence[int], Sequence[int], Block, list[bytes], list[int], list[int], Sequence[int], Quote
]  # fmt: skip


def _columns(burst: Burst, slices: Slices) -> Columns:
    return (
        burst.block, to_array(burst.starts), to_array(burst.ends), digests_of(burst),
        burst.topics, burst.run_ends, burst.sequences, edges_of(slices), _quote,
    )  # fmt: skip


def _positions(burst: Burst, offsets: bool) -> tuple[int, Sequence[int]] | tuple[()]:
    return (burst.offset, burst.each_time()) if offsets else ()


class HermodEncoder(Encoder):
    name = NAME

    def __init__(self, offsets: bool) -> None:
        self._offsets = offsets

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        columns = (*_columns(burst, slices), *_positions(burst, self._offsets))
        if _is_large(burst, slices):
            blocks = scattered_frames(*columns)
            return Encoded(blocks, sum(map(len, blocks)))
        block = frames(*columns)
        return Encoded([block], len(block))


def _is_large(burst: Burst, slices: Slices) -> bool:
    """Whether to send payloads from where they are takes less time than to copy them.

    A payload that waits to be sent keeps its whole block in memory: most of the block must be sent."""
    if burst.span_bytes() < SCATTERED_BYTES * len(burst):
        return False
    size = sum([burst.ends[stop - 1] - burst.starts[start] for start, stop in slices])
    return size >= SCATTERED_BYTES * count_messages(slices) and size * SHARE_TO_PIN >= len(burst.block)


def to_array(column: Sequence[int]) -> array[int]:
    return column if isinstance(column, array) else array("q", column)


ENCODER = HermodEncoder(offsets=False)
OFFSET_ENCODER = HermodEncoder(offsets=True)


NOTICE = -1


class PacedEncoder(Encoder):
    """For one subscriber: at most `window` unacknowledged messages, in groups of at most `batch`; 0: no bound."""

    name = NAME

    def __init__(self) -> None:
        self._window = 0
        self._batch = 0
        self._withheld: deque[tuple[bytes, bytes, int]] = deque()
        """Withheld frames, with topic and sequence; NOTICE as the sequence: no message."""
        self._notices = 0
        """Withheld notices."""
        self._sent: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        """Unacknowledged messages, oldest first, with their group: one OK acknowledges a group."""
        self._by_topic: dict[bytes, deque[int]] = {}
        """The sequences of unacknowledged messages, by topic."""
        self._group = 0
        self._closed = False
        self.offsets = False
        """Whether headers have offsets and times."""
        self.withheld_bytes = 0

    @property
    def unacknowledged(self) -> int:
        return len(self._sent)

    def set(self, window: int | None, batch: int | None) -> None:
        """None: unchanged."""
        self._window = self._window if window is None else window
        self._batch = self._batch if batch is None else batch
        if not self._window:
            self._sent.clear()
            self._by_topic.clear()

    def close(self) -> None:
        """The connection is closed: drop everything."""
        self._closed = True
        self._withheld.clear()
        self._sent.clear()
        self._by_topic.clear()
        self.withheld_bytes = self._notices = 0

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if self._closed:
            return Encoded([], 0)
        frames = each_frame(*_columns(burst, slices), *_positions(burst, self.offsets))
        for run, first, last in burst.runs(slices):
            topic = burst.topics[run]
            shift = burst.sequences[run] - (burst.run_ends[run - 1] if run else 0)
            for i, frame in zip(range(first, last), frames, strict=False):
                self._withheld.append((frame, topic, i + shift))
                self.withheld_bytes += len(frame)
        released = self.release()
        return Encoded([released] if released else [], len(released))

    def notify(self, notice: bytes) -> bytes:
        """A notice keeps its place among the messages, and is not acknowledged."""
        if not self._closed:
            self._withheld.append((notice, b"", NOTICE))
            self.withheld_bytes += len(notice)
            self._notices += 1
        return self.release()

    def release(self) -> bytes:
        """The frames that the window has room for."""
        return b"".join(self._released())

    def _released(self) -> Iterator[bytes]:
        while self._withheld:
            if self._withheld[0][2] == NOTICE:
                notice, _, _ = self._withheld.popleft()
                self.withheld_bytes -= len(notice)
                self._notices -= 1
                yield notice
                continue
            room = self._window - self.unacknowledged if self._window else len(self._withheld)
            count = min(room, self._batch or 1, self._before_notice())
            if count <= 0:
                return
            if self._batch:
                yield b'{"batch_type": "Count", "count": %d}' % count
            self._group += 1
            for _ in range(count):
                frame, topic, sequence = self._withheld.popleft()
                self.withheld_bytes -= len(frame)
                if self._window:
                    self._sent[topic, sequence] = self._group
                    self._by_topic.setdefault(topic, deque()).append(sequence)
                yield frame

    def _before_notice(self) -> int:
        """Withheld messages before the first notice: a group ends there."""
        if not self._notices:
            return len(self._withheld)
        return next(index for index, (_, _, sequence) in enumerate(self._withheld) if sequence == NOTICE)

    def acknowledge(self) -> None:
        """One OK acknowledges the rest of the oldest group."""
        group = next(iter(self._sent.values()), None)
        while self._sent and next(iter(self._sent.values())) == group:
            (topic, _), _ = self._sent.popitem(last=False)
            self._drop_oldest(topic)

    def acknowledge_up_to(self, topic: bytes, sequence: int) -> None:
        while (waiting := self._by_topic.get(topic)) and waiting[0] <= sequence:
            self._sent.pop((topic, waiting[0]), None)  # a replay may have sent it twice
            self._drop_oldest(topic)

    def _drop_oldest(self, topic: bytes) -> None:
        waiting = self._by_topic[topic]
        waiting.popleft()
        if not waiting:
            del self._by_topic[topic]
