"""What is answered to the messages of a burst, in one piece behind it.

An OK promises that a message is kept. Where the log could not keep it, the same answers are made once more, with
an ERROR in the place of each OK.
"""

from __future__ import annotations

from functools import partial

from polycast.dialects.hermod.batches import NOT_STORED, Batch
from polycast.dialects.hermod.encoders import OK, to_error
from polycast.model import Ack, Reply

Part = int | bytes | Batch
"""So many OKs to single messages, words that promise nothing, or the reply to a batch."""


class Answers:
    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._promises = False

    def add_oks(self, count: int) -> None:
        self._promises = True
        last = self._parts[-1] if self._parts else None
        if isinstance(last, int):
            self._parts[-1] = last + count
        else:
            self._parts.append(count)

    def add_words(self, data: bytes) -> None:
        self._parts.append(data)

    def add_batch(self, batch: Batch) -> None:
        self._promises = self._promises or batch.accepted > 0
        self._parts.append(batch)

    def take(self) -> Ack | Reply | None:
        """All of them, if there are any."""
        parts, promises = self._parts, self._promises
        self._parts, self._promises = [], False
        if not parts:
            return None
        data = b"".join(map(_said, parts))
        return Ack(data, partial(_taken_back, parts)) if promises else Reply(data)


def _said(part: Part) -> bytes:
    if isinstance(part, int):
        return OK * part
    return part if isinstance(part, bytes) else part.reply()


def _taken_back(parts: list[Part], reason: str, kept: int) -> bytes:
    single = to_error(500, NOT_STORED % reason)
    said: list[bytes] = []
    for part in parts:
        if isinstance(part, int):
            said.append(single * part)
        else:
            said.append(part if isinstance(part, bytes) else part.to_failure(reason, kept))
    return b"".join(said)
