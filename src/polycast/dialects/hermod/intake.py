"""What one block brings in `hermod`: messages in columns, and what is answered to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from polycast.dialects.hermod.answers import Answers
from polycast.dialects.hermod.batches import Batch
from polycast.dialects.hermod.columns import Columns
from polycast.dialects.hermod.encoders import NAME, PacedEncoder
from polycast.model import Block, Closing, DeferredReply, Event, Received

Act = Callable[[], None]


class Intake:
    """What one block brings: messages gather in columns, what is answered to them comes behind them."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._events: list[Event] = []
        self._acts: list[Act] = []
        self.answers = Answers()
        self.columns = Columns()
        self.closed = False

    def add(self, event: Event) -> None:
        self._end_burst()
        self._events.append(event)
        self.closed = isinstance(event, Closing)

    def end_batch(self, batch: Batch) -> None:
        """Of one that began in an earlier burst, only this one's part may be lost: it is answered by itself."""
        once = batch.to_once(self.block)
        if once:
            self.add(once)
            return
        self.answers.add_batch(batch)
        if batch.accepted > self.columns.count:
            self._end_burst()

    def defer(self, act: Act, encoder: PacedEncoder) -> None:
        """`act` makes room in the form when its turn comes; what several in a row make room for comes at once."""
        self._end_burst()
        if not self._events or not isinstance(self._events[-1], DeferredReply):
            self._acts = []
            self._events.append(DeferredReply(partial(_release, self._acts, encoder)))
        self._acts.append(act)

    def close(self, consumed: int, need: int = 0) -> Received:
        self._end_burst()
        return Received(self._events, consumed, need)

    def _end_burst(self) -> None:
        if self.columns.topics:
            self._events.append(self.columns.to_burst(NAME, self.block))
            self.columns = Columns()
        if answer := self.answers.take():
            self._events.append(answer)


def _release(acts: list[Act], encoder: PacedEncoder) -> bytes:
    for act in acts:
        act()
    return encoder.release()
