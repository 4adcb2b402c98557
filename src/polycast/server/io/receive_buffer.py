"""Where the bytes of a connection are read into.

All connections read into one shared buffer; a read is processed before the next one begins, so it is free
again by then. What a connection leaves unfinished is kept as its tail, and put in front of its next read. A frame
that is known to be large gets a buffer of its own, which is filled in place and becomes the block: its bytes
are never copied. That buffer grows as the bytes come, so that a header alone cannot claim memory. So does a long
line, whose end only the bytes themselves can tell: it is looked at again when that has come. A full buffer grows
with the next read, so that whoever counts what all connections hold can put that read off.
"""

from __future__ import annotations

from polycast.model import Block

SHARED_BYTES = 256 * 1024
LARGE_BYTES = SHARED_BYTES // 2
"""What is longer than this is assembled in a buffer of its own."""
FIRST_LARGE_BYTES = 64 * 1024
SMALLEST_READ_BYTES = 8 * 1024
LONG_SECONDS, SHORT_SECONDS = 0.05, 0.01
"""A read that takes longer than the first makes the next one smaller; less than the second, larger."""


class ReceiveBuffer:
    __slots__ = ("_filled", "_large", "_need", "_reach", "_shared", "_tail", "_until", "held")

    def __init__(self, shared: memoryview) -> None:
        self._shared = shared
        self._reach = SHARED_BYTES
        """How much may be read at once."""
        self._tail: Block = b""
        self._large: bytearray | None = None
        self._filled = 0
        self._need = 0
        self._until = b""
        self.held = 0
        """What is taken by a frame that is not finished."""

    @property
    def is_full(self) -> bool:
        """Whether the next read needs a larger buffer."""
        return self._large is not None and self._filled == len(self._large)

    @property
    def wanted(self) -> int:
        """What will be taken by it after the next read."""
        return self._size_behind(self._filled) if self.is_full else self.held

    @property
    def expected(self) -> int:
        """How long it will be, as far as that is known."""
        return max(self._need, self.filled)

    @property
    def filled(self) -> int:
        """How much has come of it."""
        return len(self._tail) if self._large is None else self._filled

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._large is not None:
            if self._filled == len(self._large):
                self._grow(memoryview(self._large))
            return memoryview(self._large)[self._filled :]
        size = len(self._tail)
        if 0 < size <= LARGE_BYTES:
            self._shared[:size] = self._tail
            return self._shared[size : size + self._reach]
        return self._shared[: self._reach]

    def adapt(self, taken: float) -> None:
        """`taken` is what the last read took to handle: nobody may have the broker to itself for long."""
        if taken > LONG_SECONDS:
            self._reach = max(SMALLEST_READ_BYTES, self._reach // 4)
        elif taken < SHORT_SECONDS:
            self._reach = min(SHARED_BYTES, self._reach * 2)

    def take(self, count: int) -> Block | None:
        """The block that `count` more bytes make; None while a large frame is not all there."""
        if self._large is not None:
            return self._take_large(count)
        size = len(self._tail)
        if size > LARGE_BYTES:
            return bytes(self._tail) + self._shared[:count]
        return bytes(self._shared[: size + count])

    def keep(self, block: Block, consumed: int, need: int, until: bytes = b"") -> None:
        """What was not consumed of a block comes again: when there is as much as it needs, or `until` came."""
        self._large = None
        self._until, self._need = until, need
        rest = len(block) - consumed
        if need > LARGE_BYTES and (not until or rest > LARGE_BYTES):
            self._grow(memoryview(block)[consumed:])
            self._tail = b""
        else:
            self._tail = block[consumed:] if rest else b""
            self.held = rest

    def head(self, size: int) -> bytes:
        """How it begins."""
        return bytes(self._tail[:size] if self._large is None else self._large[: min(size, self._filled)])

    def drop(self) -> None:
        """Nobody waits for the rest of it."""
        self._large, self._tail = None, b""
        self.held = self._filled = self._need = 0

    def rest(self) -> Block:
        """What has come of a frame that is not finished."""
        return self._tail if self._large is None else self._large[: self._filled]

    def _take_large(self, count: int) -> Block | None:
        assert self._large is not None
        before, self._filled = self._filled, self._filled + count
        if self._until and self._large.find(self._until, before, self._filled) >= 0:
            return self._large[: self._filled]
        return None if self._filled < self._need else self._large

    def _size_behind(self, filled: int) -> int:
        return min(self._need, max(FIRST_LARGE_BYTES, 2 * filled))

    def _grow(self, begun: memoryview) -> None:
        self._filled = len(begun)
        self.held = self._size_behind(self._filled)
        self._large = bytearray(self.held)
        self._large[: self._filled] = begun
