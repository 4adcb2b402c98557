"""The messages of `hermod` in columns, while they are found."""

from __future__ import annotations

from array import array

from polycast.dialects.hermod.scan import Messages
from polycast.model import Block, Burst, Format


class Columns:
    """Where each message lies in a block, and what else is known of it."""

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.run_ends: list[int] = []
        self.starts, self.ends = array("q"), array("q")
        self.digests: list[bytes] = []
        """Empty where nobody has looked."""

    @property
    def count(self) -> int:
        return len(self.starts)

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
