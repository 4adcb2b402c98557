"""The last offset of a pattern, from the table of topics: a query need not read behind it.

The table has every topic of the log with its last offset, unless topics were forgotten (`limits.topics`) or an
earlier run did not stop cleanly. An incomplete table still has all topics of this run.
"""

from __future__ import annotations

from polycast.log.read.work import Work
from polycast.model import Exact, Pattern
from polycast.routing import Topic, Topics

ANYWHERE = 2**63 - 1
TOPICS_AT_MOST = 100_000
"""With more topics than this, only exact patterns are looked up."""
TOPICS_A_PIECE = 2_000


class LastOffsets:
    def __init__(self, topics: Topics, first: int) -> None:
        """`first`: the first offset of this run."""
        self._topics = topics
        self._first = first
        self._complete = topics.floor == 0
        """Whether the table began with all topics of the log."""

    def end(self, pattern: Pattern) -> Work[int]:
        """No message that matches has this offset or a higher one. The work may run in a thread."""
        if isinstance(pattern, Exact):
            found = self._topics.get(pattern.value.encode())
            return self._compare(pattern, [found] if found else [])
        if len(self._topics) > TOPICS_AT_MOST or self._topics.forgotten:
            return self._compare(pattern, None)
        return self._compare(pattern, list(self._topics))

    def _compare(self, pattern: Pattern, topics: list[Topic] | None) -> Work[int]:
        if topics is None:
            return ANYWHERE
        last = -1
        for start in range(0, len(topics), TOPICS_A_PIECE):
            piece = topics[start : start + TOPICS_A_PIECE]
            last = max([last, *(topic.last_offset for topic in piece if pattern.matches(topic.name))])
            yield
        if last >= self._first:
            return last + 1
        if self._topics.forgotten:
            return ANYWHERE
        return last + 1 if self._complete else self._first
