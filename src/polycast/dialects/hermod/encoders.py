"""What `hermod` sends: status lines, responses, and messages with their sequence and their sha1.

    {"topic": T, "sequence": S, "payload_size": N, "checksum": sha1}PAYLOAD

Most subscribers share one encoder. A subscriber with a `window` or a `batch` has its own, which withholds messages
until the window has room:

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

from polycast.dialects.hermod.scan import FRAME, Run, digests, frames
from polycast.model import Body, Burst, Encoded, Encoder, Slices

NAME = "hermod"
OK = b'{"status": "OK"}\n'


def to_ok(count: int) -> bytes:
    return b'{"status": "OK", "count": %d}\n' % count


def to_error(code: int, message: str, count: int | None = None) -> bytes:
    """`count` is the number of accepted messages of a batch."""
    tail = b"" if count is None else b', "count": %d' % count
    return b'{"status": "ERROR", "code": %d, "message": %b%b}\n' % (code, msgspec.json.encode(message), tail)


RESPONSE_CODES = {
    "BadRequest": 400,
    "Forbidden": 403,
    "NotFound": 404,
    "TooLarge": 413,
    "NotKept": 501,
    "Busy": 503,
    "Gone": 503,
    "Timeout": 504,
}
"""By the first word of a failure; any other is a 500."""


def to_response(number: int, success: bool, body: Body) -> bytes:
    if success:
        head = b'{"status": "OK", "id": %d, "format": "%b", "payload_size": %d}'
        return head % (number, body.format.encode(), len(body.payload)) + body.payload + b"\n"
    message = body.payload.decode(errors="replace")
    code = RESPONSE_CODES.get(message.partition(":")[0], 500)
    head = b'{"status": "ERROR", "id": %d, "code": %d, "message": %b}\n'
    return head % (number, code, msgspec.json.encode(message))


def digests_of(burst: Burst) -> list[bytes]:
    """The sha1 of each payload, computed once for each burst."""
    if burst.digests is None:
        burst.digests = digests(burst.block, to_array(burst.starts), to_array(burst.ends))
    return burst.digests


def _frames(burst: Burst, slices: Slices) -> list[bytes]:
    """One frame for each message."""
    block, starts, ends, digests = burst.block, burst.starts, burst.ends, digests_of(burst)
    return [
        FRAME % (head, sequence + i - first, ends[i] - starts[i], digests[i], block[starts[i] : ends[i]])
        for head, first, last, sequence in _runs(burst, slices)
        for i in range(first, last)
    ]


def _runs(burst: Burst, slices: Slices) -> list[Run]:
    heads: dict[bytes, bytes] = {}
    runs: list[Run] = []
    for run, first, last in burst.runs(slices):
        topic = burst.topics[run]
        head = heads.get(topic)
        if head is None:
            head = heads[topic] = b'{"topic": %b, "sequence": ' % msgspec.json.encode(topic.decode())
        runs.append((head, first, last, first + _shift(burst, run)))
    return runs


def _shift(burst: Burst, run: int) -> int:
    """The difference between a message's sequence and its index in the burst."""
    return burst.sequences[run] - (burst.run_ends[run - 1] if run else 0)


class HermodEncoder(Encoder):
    name = NAME

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        starts, ends = to_array(burst.starts), to_array(burst.ends)
        block = frames(burst.block, starts, ends, digests_of(burst), _runs(burst, slices))
        return Encoded([block], len(block))


def to_array(column: Sequence[int]) -> array[int]:
    return column if isinstance(column, array) else array("q", column)


ENCODER = HermodEncoder()


class PacedEncoder(Encoder):
    """For one subscriber: at most `window` unacknowledged messages, in groups of at most `batch`; 0: no bound."""

    name = NAME

    def __init__(self) -> None:
        self._window = 0
        self._batch = 0
        self._withheld: deque[tuple[bytes, bytes, int]] = deque()
        """Withheld frames, with topic and sequence."""
        self._sent: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        """Unacknowledged messages, oldest first, with their group: one OK acknowledges a group."""
        self._by_topic: dict[bytes, deque[int]] = {}
        """The sequences of unacknowledged messages, by topic."""
        self._group = 0
        self._closed = False
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
        self.withheld_bytes = 0

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if self._closed:
            return Encoded([], 0)
        frames = iter(_frames(burst, slices))
        for run, first, last in burst.runs(slices):
            topic, shift = burst.topics[run], _shift(burst, run)
            for i, frame in zip(range(first, last), frames, strict=False):
                self._withheld.append((frame, topic, i + shift))
                self.withheld_bytes += len(frame)
        released = self.release()
        return Encoded([released] if released else [], len(released))

    def release(self) -> bytes:
        """The frames that the window has room for."""
        return b"".join(self._released())

    def _released(self) -> Iterator[bytes]:
        while self._withheld:
            room = self._window - self.unacknowledged if self._window else len(self._withheld)
            count = min(room, self._batch or 1, len(self._withheld))
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
