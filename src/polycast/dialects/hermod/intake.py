"""What one block brings in `hermod`: messages in columns, and what is answered to them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial

from polycast.dialects.hermod.forms import NAME, PacedForm
from polycast.dialects.hermod.scan import Messages
from polycast.model import Block, Burst, Closing, Deferred, Event, Format, Received, Reply

Act = Callable[[], None]


class Columns:
    """The messages of a block while they are found."""

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.run_ends: list[int] = []
        self.starts, self.ends = array("q"), array("q")
        self.digests: list[bytes] = []
        """Empty where nobody has looked."""

    def add(self, topic: bytes, start: int, end: int, digest: bytes) -> None:
        if not self.topics or self.topics[-1] != topic:
            self.topics.append(topic)
            self.run_ends.append(len(self.starts))
        self.run_ends[-1] += 1
        self.starts.append(start)
        self.ends.append(end)
        self.digests.append(digest)

    def extend(self, found: Messages) -> int:
        """Takes what a scan found; returns how many that were."""
        topics, run_ends, starts, ends, digests, _ = found
        before = len(self.starts)
        if topics and self.topics[-1:] == topics[:1]:
            self.topics.pop()
            self.run_ends.pop()
        self.topics += topics
        self.run_ends += [before + end for end in run_ends] if before else run_ends
        self.starts.extend(starts)
        self.ends.extend(ends)
        self.digests += digests
        return len(starts)

    def to_burst(self, dialect: str, block: Block) -> Burst:
        formats = [Format.BYTES] * len(self.topics)
        digests = self.digests if all(self.digests) else None
        return Burst(
            dialect, block, self.starts, self.ends, self.topics, formats, self.run_ends, digests=digests
        )  # fmt: skip


class Intake:
    """What one block brings: messages gather in columns, what is answered to them comes behind them."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._replies: list[bytes] = []
        self._events: list[Event] = []
        self._acts: list[Act] = []
        self.columns = Columns()
        self.closed = False

    def reply(self, data: bytes) -> None:
        self._replies.append(data)

    def add(self, event: Event) -> None:
        self._end_burst()
        self._events.append(event)
        self.closed = isinstance(event, Closing)

    def defer(self, act: Act, form: PacedForm) -> None:
        """`act` makes room in the form when its turn comes; what several in a row make room for comes at once."""
        self._end_burst()
        if not self._events or not isinstance(self._events[-1], Deferred):
            self._acts = []
            self._events.append(Deferred(partial(_release, self._acts, form)))
        self._acts.append(act)

    def close(self, consumed: int, need: int = 0) -> Received:
        self._end_burst()
        return Received(self._events, consumed, need)

    def _end_burst(self) -> None:
        if self.columns.topics:
            self._events.append(self.columns.to_burst(NAME, self._block))
            self.columns = Columns()
        if self._replies:
            self._events.append(Reply(b"".join(self._replies)))
            self._replies = []


def _release(acts: list[Act], form: PacedForm) -> bytes:
    for act in acts:
        act()
    return form.release()
