"""The events of one block in `hermod`: messages in columns, followed by the replies to them.

An OK acknowledges a durable message. If the log fails, the same replies are encoded again, with an ERROR in place
of each OK.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from polycast.dialects.framing import append_event
from polycast.dialects.hermod.batches import NOT_DURABLE, Batch, MessageColumns
from polycast.dialects.hermod.encoders import NAME, OK, PacedEncoder, to_error
from polycast.model import Ack, Block, Closing, DeferredReply, Event, Received, Reply

Part = int | bytes | Batch
"""A number of OKs to single messages, an ERROR, or the reply to a batch."""
Action = Callable[[], None]


class Replies:
    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._acknowledges = False

    def add_oks(self, count: int) -> None:
        self._acknowledges = True
        last = self._parts[-1] if self._parts else None
        if isinstance(last, int):
            self._parts[-1] = last + count
        else:
            self._parts.append(count)

    def add_reply(self, data: bytes) -> None:
        self._parts.append(data)

    def add_batch(self, batch: Batch) -> None:
        self._acknowledges = self._acknowledges or batch.accepted > 0
        self._parts.append(batch)

    def take(self) -> Ack | Reply | None:
        """All replies since the last call, as one event."""
        parts, acknowledges = self._parts, self._acknowledges
        self._parts, self._acknowledges = [], False
        if not parts:
            return None
        data = b"".join(map(_encode_part, parts))
        return Ack(data, partial(_encode_failure, parts)) if acknowledges else Reply(data)


def _encode_part(part: Part) -> bytes:
    if isinstance(part, int):
        return OK * part
    return part if isinstance(part, bytes) else part.reply()


def _encode_failure(parts: list[Part], reason: str, durable: int) -> bytes:
    single = to_error(500, NOT_DURABLE % reason)
    encoded: list[bytes] = []
    for part in parts:
        if isinstance(part, int):
            encoded.append(single * part)
        else:
            encoded.append(part if isinstance(part, bytes) else part.to_failure(reason, durable))
    return b"".join(encoded)


class BlockEvents:
    def __init__(self, block: Block) -> None:
        self.block = block
        self._events: list[Event] = []
        self._actions: list[Action] = []
        self.replies = Replies()
        self.columns = MessageColumns()
        self.closed = False

    def add(self, event: Event) -> None:
        self._end_burst()
        append_event(self._events, event)
        self.closed = isinstance(event, Closing)

    def end_batch(self, batch: Batch) -> None:
        """A batch that started in an earlier burst ends this burst: only its part in it may fail."""
        if event := batch.to_event(self.block):
            self.add(event)
            return
        self.replies.add_batch(batch)
        if batch.accepted > self.columns.count:
            self._end_burst()

    def defer(self, action: Action, encoder: PacedEncoder) -> None:
        """Defers `action`, which makes room in the window; consecutive actions release messages once."""
        self._end_burst()
        if not self._events or not isinstance(self._events[-1], DeferredReply):
            self._actions = []
            self._events.append(DeferredReply(partial(_release, self._actions, encoder)))
        self._actions.append(action)

    def close(self, consumed: int, frame_bytes: int = 0) -> Received:
        self._end_burst()
        return Received(self._events, consumed, frame_bytes)

    def _end_burst(self) -> None:
        if self.columns.topics:
            self._events.append(self.columns.to_burst(NAME, self.block))
            self.columns = MessageColumns()
        if reply := self.replies.take():
            self._events.append(reply)


def _release(actions: list[Action], encoder: PacedEncoder) -> bytes:
    for action in actions:
        action()
    return encoder.release()
