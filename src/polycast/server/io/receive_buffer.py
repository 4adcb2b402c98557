"""The receive buffer of one connection.

All connections read into one shared buffer: each read is handled before the next one begins. The incomplete frame
at the end of a read is copied to the connection's tail, and put in front of its next read. A frame that is known
to be large gets a buffer of its own, which is filled in place and becomes the block: its bytes are never copied.
That buffer has room for what was received, and grows with the next read: a header alone cannot claim memory, and
`PartialFrames` can delay that read. A long line gets such a buffer, too; it is not scanned again before its
terminator was received.
"""

from __future__ import annotations

from collections import OrderedDict

from polycast.model import Block

SHARED_BYTES = 2 * 1024 * 1024
SHARE = 16
"""A read has at most this fraction of what may wait to be sent, to become durable or to be applied."""
READ_BYTES = 256 * 1024
"""The first read of a connection. While there is more to read and reads are brisk, they become larger, so that a
call to send has more messages. Where each message has many subscribers, larger blocks would only leave the
processor's cache."""
LARGE_READERS = 32
"""Connections whose reads are larger than READ_BYTES."""
LARGE_BYTES = 128 * 1024
"""Longer frames get a buffer of their own."""
FIRST_LARGE_BYTES = 64 * 1024
SMALLEST_READ_BYTES = 16 * 1024
"""With 10,000 subscribers, smaller reads take as long: the calls to send are most of it."""
ANONYMOUS_READ_BYTES = 16 * 1024
"""The largest read from a peer with rights but without a known identity."""
UNAUTHORIZED_READ_BYTES = 2 * 1024
"""The largest read from a peer without rights, and the first read from an anonymous one. A token is shorter."""
LONG_SECONDS, SHORT_SECONDS = 0.05, 0.025
"""A read that takes longer than the first makes the next read smaller; shorter than the second, larger."""
SLOW_SECONDS, BRISK_SECONDS = 0.004, 0.002
"""The same for reads of more than READ_BYTES."""


class SharedMemory:
    """The memory that all connections read into, and the connections whose reads are large."""

    def __init__(self, *limits: int) -> None:
        """`limits`: of bytes that wait after they were read."""
        self.memory = memoryview(bytearray(min(SHARED_BYTES, max(READ_BYTES, min(limits) // SHARE))))
        self._large: OrderedDict[ReceiveBuffer, None] = OrderedDict()

    def note_large(self, buffer: ReceiveBuffer) -> None:
        """The reads of another connection become smaller instead. What is read of an incomplete frame is in memory
        before any limit is asked: that must not be megabytes for thousands of connections."""
        self._large[buffer] = None
        self._large.move_to_end(buffer)
        if len(self._large) > LARGE_READERS:
            oldest, _ = self._large.popitem(last=False)
            oldest.end_large_reads()

    def forget(self, buffer: ReceiveBuffer) -> None:
        self._large.pop(buffer, None)


class ReceiveBuffer:
    __slots__ = (
        "_filled",
        "_has_more",
        "_large",
        "_largest_read_bytes",
        "_memory",
        "_need",
        "_read_bytes",
        "_room_bytes",
        "_shared",
        "_tail",
        "_until",
        "held",
    )

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._shared = shared = memory.memory
        self._read_bytes, self._largest_read_bytes = READ_BYTES, len(shared)
        """The size of the next read, and its upper limit."""
        self._room_bytes = 0
        self._has_more = False
        """Whether the last read filled its memory."""
        self._tail: Block = b""
        self._large: bytearray | None = None
        self._filled = 0
        self._need = 0
        self._until = b""
        self.held = 0
        """The memory that the incomplete frame uses."""

    @property
    def reads_much(self) -> bool:
        """Whether one read may be all that is read in a turn."""
        return self._read_bytes > READ_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the next read needs a larger buffer."""
        return self._large is not None and self._filled == len(self._large)

    @property
    def wanted(self) -> int:
        """The memory that the incomplete frame will use after the next read."""
        return self._size_after(self._filled) if self.is_full else self.held

    @property
    def expected(self) -> int:
        """The length of the incomplete frame, as far as it is known."""
        return max(self._need, self.filled)

    @property
    def filled(self) -> int:
        """The bytes received of the incomplete frame."""
        return len(self._tail) if self._large is None else self._filled

    def room(self) -> memoryview:
        """The memory for the next read."""
        if self._large is not None:
            if self._filled == len(self._large):
                self._hold(memoryview(self._large), self._size_after(self._filled))
            return memoryview(self._large)[self._filled :]
        size = len(self._tail) if len(self._tail) <= LARGE_BYTES else 0
        if size:
            self._shared[:size] = self._tail
        room = self._shared[size : size + self._read_bytes]
        self._room_bytes = len(room)
        return room

    def adapt(self, taken: float, behind: bool) -> None:
        """Adapt the size of a read to the seconds that the last one took: no connection may block the others.

        `behind`: whether a connection receives less than is sent to it. It must not get much at once."""
        size, largest = self._read_bytes, self._largest_read_bytes
        if taken > LONG_SECONDS:
            self._read_bytes = max(min(SMALLEST_READ_BYTES, largest // 8), size // 4)
        elif size > READ_BYTES and (behind or taken > SLOW_SECONDS):
            self._read_bytes = size // 2
        elif (size < READ_BYTES and taken < SHORT_SECONDS) or (
            self._has_more and not behind and taken < BRISK_SECONDS
        ):
            self._read_bytes = min(largest, size * 2)
            if self._read_bytes > READ_BYTES:
                self._memory.note_large(self)

    def end_large_reads(self) -> None:
        self._read_bytes = min(self._read_bytes, READ_BYTES)

    def limit_reads(self, largest: int, first: int) -> None:
        """The next read has at most `first` bytes, every later one at most `largest`."""
        self._largest_read_bytes, self._read_bytes = largest, first

    def allow_reads(self) -> None:
        """Ends the limit."""
        self.limit_reads(len(self._shared), READ_BYTES)

    def take(self, count: int) -> Block | None:
        """The block after a read of `count` bytes; None while a large frame is incomplete."""
        if self._large is not None:
            return self._take_large(count)
        self._has_more = count == self._room_bytes
        size = len(self._tail)
        if size > LARGE_BYTES:
            return bytes(self._tail) + self._shared[:count]
        return bytes(self._shared[: size + count])

    def keep(self, block: Block, consumed: int, need: int, until: bytes = b"") -> None:
        """Keep what was not consumed, until there are `need` bytes of it or `until` was received."""
        self._large = None
        self._until, self._need = until, need
        rest = len(block) - consumed
        if need > LARGE_BYTES and (not until or rest > LARGE_BYTES):
            self._hold(memoryview(block)[consumed:], max(rest, min(need, FIRST_LARGE_BYTES)))
            self._tail = b""
        else:
            self._tail = block[consumed:] if rest else b""
            self.held = rest

    def head(self, size: int) -> bytes:
        """The first bytes of the incomplete frame."""
        return bytes(self._tail[:size] if self._large is None else self._large[: min(size, self._filled)])

    def drop(self) -> None:
        self._large, self._tail = None, b""
        self.held = self._filled = self._need = 0
        self._memory.forget(self)

    def rest(self) -> Block:
        """The received part of the incomplete frame."""
        return self._tail if self._large is None else self._large[: self._filled]

    def _take_large(self, count: int) -> Block | None:
        assert self._large is not None
        before, self._filled = self._filled, self._filled + count
        if self._until and self._large.find(self._until, before, self._filled) >= 0:
            return self._large[: self._filled]
        return None if self._filled < self._need else self._large

    def _size_after(self, filled: int) -> int:
        return min(self._need, max(FIRST_LARGE_BYTES, 2 * filled))

    def _hold(self, received: memoryview, size: int) -> None:
        self._filled, self.held = len(received), size
        self._large = bytearray(size)
        self._large[: self._filled] = received
