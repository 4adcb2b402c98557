"""The last offset of some patterns, from the table of topics: a query need not read behind it.

The table has every topic of the log with its last offset, unless topics were forgotten (`limits.topics`) or an
earlier run did not stop cleanly. An incomplete table still has all topics of this run.
"""

from __future__ import annotations

from collections.abc import Sequence

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

    def end(self, patterns: Sequence[Pattern], since: int = 0) -> Work[int]:
        """No message that matches has this offset or a higher one. The work may run in a thread.

        Messages before `since` do not count, and their topics are not compared.
        """
        exact = [pattern.value.encode() for pattern in patterns if isinstance(pattern, Exact)]
        if len(exact) == len(patterns):
            return self._compare(patterns, [found for name in exact if (found := self._topics.get(name))], since)
        if len(self._topics) > TOPICS_AT_MOST or self._topics.forgotten:
            return self._compare(patterns, None, since)
        return self._compare(patterns, list(self._topics), since)

    def _compare(self, patterns: Sequence[Pattern], topics: list[Topic] | None, since: int) -> Work[int]:
        if topics is None:
            return ANYWHERE
        last, step = -1, max(1, TOPICS_A_PIECE // max(1, len(patterns)))
        for start in range(0, len(topics), step):
            recent = (topic for topic in topics[start : start + step] if topic.last_offset >= since)
            found = [topic.last_offset for topic in recent if any(each.matches(topic.name) for each in patterns)]
            last = max([last, *found])
            yield
        if last >= self._first:
            return last + 1
        if self._topics.forgotten:
            return ANYWHERE
        return last + 1 if self._complete else self._first
