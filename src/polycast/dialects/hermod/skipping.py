"""The payload of a message that is refused for its header: it is passed over as it comes, and never kept.

Where it ends depends on where it began: the line break that may stand before it counts only if the checksum
says so (see `headers.find_payload`). So a payload that begins with one is hashed twice while it passes.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from polycast.dialects.hermod.headers import CR, LF, SHA1_DIGITS
from polycast.model import Block

if TYPE_CHECKING:
    from hashlib import _Hash

WHOLE_BYTES = 4096
"""A payload up to this size is read as a whole before its message is refused."""


class Skipping:
    def __init__(self, size: int, checksum: bytes = b"") -> None:
        """With a checksum, `size` is larger than WHOLE_BYTES."""
        self._size = self._left = size
        self._checksum = checksum if len(checksum) == SHA1_DIGITS else b""
        self._shift = 0
        """How long the line break before the payload is, if it is one."""
        self._plain: _Hash | None = None
        self._shifted: _Hash | None = None
        self.done = False

    def feed(self, block: Block, position: int) -> int:
        """The position up to which it has passed. What is left of the block comes again unless it is done."""
        if self._checksum and self._left == self._size:
            if len(block) - position < 2:
                return position
            self._begin(block[position], block[position + 1])
        end = min(len(block), position + self._left)
        self._look_at(block, position, end)
        self._left -= end - position
        return end if self._left else self._finish(block, end)

    def _begin(self, first: int, second: int) -> None:
        self._shift = 1 if first == LF else 2 * (first == CR and second == LF)
        if self._shift:
            self._plain, self._shifted = sha1(usedforsecurity=False), sha1(usedforsecurity=False)

    def _look_at(self, block: Block, position: int, end: int) -> None:
        if self._plain and self._shifted:
            view = memoryview(block)
            self._plain.update(view[position:end])
            begins = self._left == self._size
            self._shifted.update(view[position + self._shift * begins : end])

    def _finish(self, block: Block, end: int) -> int:
        self.done = True
        if not self._plain or not self._shifted or self._fits(self._plain):
            return end
        if len(block) - end < self._shift:
            self.done = False
            return end
        self._shifted.update(memoryview(block)[end : end + self._shift])
        return end + self._shift if self._fits(self._shifted) else end

    def _fits(self, digest: _Hash) -> bool:
        return digest.hexdigest().encode() == self._checksum
