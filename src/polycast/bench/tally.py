"""Tallies: counting the acknowledgements in what one connection reads, by the block and not one by one.

Counting must cost nothing beside the brokers, and still no refusal may pass for an acknowledgement. Where all
answers are alike they are compared as one block of bytes. Where they are numbered, what is counted is the
beginning that only a good answer has, and the words of a refusal are looked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from polycast.errors import RemoteError

EXCERPT_BYTES = 200


class Tally(ABC):
    @abstractmethod
    def take(self, data: bytes) -> int:
        """How many answers these bytes complete; anything but a good answer is an error."""

    @abstractmethod
    def unread(self) -> bytes:
        """What has come of an answer that is not complete."""


class AlikeTally(Tally):
    """Every answer is the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._rest = b""

    def take(self, data: bytes) -> int:
        data = self._rest + data
        count, over = divmod(len(data), len(self._answer))
        self._rest = data[len(data) - over :]
        if data != self._answer * count + self._answer[:over]:
            raise RemoteError(f"an answer other than {self._answer!r}: {self._excerpt(data)!r}")
        return count

    def unread(self) -> bytes:
        return self._rest

    def _excerpt(self, data: bytes) -> bytes:
        """From the first answer that differs."""
        size = len(self._answer)
        starts = range(0, len(data), size)
        place = next(at for at in starts if not self._answer.startswith(data[at : at + size]))
        return data[place : place + EXCERPT_BYTES]


class NumberedTally(Tally):
    """Every good answer has the `mark` once, and no good answer has any of the `refusals`."""

    def __init__(self, mark: bytes, refusals: tuple[bytes, ...]) -> None:
        self._mark = mark
        self._refusals = refusals
        self._keep = max(map(len, (mark, *refusals))) - 1
        self._rest = b""

    def take(self, data: bytes) -> int:
        counted = self._rest.count(self._mark)
        data = self._rest + data
        for refusal in self._refusals:
            place = data.find(refusal)
            if place >= 0:
                raise RemoteError(f"a refusal: {data[place : place + EXCERPT_BYTES]!r}")
        self._rest = data[-self._keep :]
        return data.count(self._mark) - counted

    def unread(self) -> bytes:
        return b""
