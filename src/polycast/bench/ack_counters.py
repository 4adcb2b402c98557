"""Counting acknowledgements per read, not one by one.

Counting must cost little, and no refusal may count as an acknowledgement. Equal acknowledgements are compared as
one block of bytes. Numbered ones are counted by the prefix that only an acknowledgement has, and the texts of
refusals are searched for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from polycast.errors import RemoteError

EXCERPT_BYTES = 200


class AckCounter(ABC):
    unread = b""
    """The bytes of an incomplete acknowledgement."""

    @abstractmethod
    def take(self, data: bytes) -> int:
        """The number of acknowledgements that `data` completes. Raises RemoteError for anything else."""


class EqualAckCounter(AckCounter):
    """All acknowledgements have the same bytes."""

    def __init__(self, ack: bytes) -> None:
        self._ack = ack

    def take(self, data: bytes) -> int:
        data = self.unread + data
        count, over = divmod(len(data), len(self._ack))
        self.unread = data[len(data) - over :]
        if data != self._ack * count + self._ack[:over]:
            raise RemoteError(f"expected {self._ack!r}, received {self._excerpt(data)!r}")
        return count

    def _excerpt(self, data: bytes) -> bytes:
        """From the first difference on."""
        size = len(self._ack)
        starts = range(0, len(data), size)
        position = next(at for at in starts if not self._ack.startswith(data[at : at + size]))
        return data[position : position + EXCERPT_BYTES]


class NumberedAckCounter(AckCounter):
    """Every acknowledgement contains the `mark` once, and none contains any of the `refusals`."""

    def __init__(self, mark: bytes, refusals: tuple[bytes, ...]) -> None:
        self._mark = mark
        self._refusals = refusals
        self._keep = max(map(len, (mark, *refusals))) - 1
        self._rest = b""

    def take(self, data: bytes) -> int:
        counted = self._rest.count(self._mark)
        data = self._rest + data
        for refusal in self._refusals:
            position = data.find(refusal)
            if position >= 0:
                raise RemoteError(f"a refusal: {data[position : position + EXCERPT_BYTES]!r}")
        self._rest = data[-self._keep :]
        return data.count(self._mark) - counted
