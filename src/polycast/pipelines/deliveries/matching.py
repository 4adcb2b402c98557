"""Applies the routing rules to columns: which connections receive each message of a batch.

    topics x patterns     matches distinct topics with distinct patterns, by the rules of `polycast.model`
    spans                 offset ranges in which a connection receives a topic, merged over its patterns
    sizes                 number of connections that receive each message, summed over spans

A connection without echo does not receive its own messages. A message from another broker is not forwarded to
links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from polycast.log.read.masks import mask_of
from polycast.model import Exact, Pattern
from polycast.pipelines.deliveries.subscription_history import Subscription

Numbers = npt.NDArray[np.int64]


class Span(NamedTuple):
    """A subscription, active for offsets from `first` up to, not including, `next`."""

    connection: str
    pattern: Pattern
    first: int
    next: int
    echo: bool = True
    link: bool = False
    """Whether the connection leads to another broker."""


def to_spans(subscriptions: Iterable[Subscription]) -> list[Span]:
    return [
        Span(each.connection, each.to_pattern(), each.since + 1, each.until, each.echo, each.link)
        for each in subscriptions
    ]


def match(topics: pa.Array, patterns: Sequence[Pattern]) -> tuple[Numbers, Numbers]:
    """Indexes of topics and patterns that match. Topics are distinct."""
    exact = [number for number, pattern in enumerate(patterns) if isinstance(pattern, Exact)]
    values = pa.array([patterns[number].value for number in exact], pa.string())
    indexes = pc.index_in(values, value_set=topics)
    found = [(_numbers(indexes.drop_null()), np.array(exact, np.int64)[_mask(indexes.is_valid())])]
    for number, pattern in enumerate(patterns):
        if not isinstance(pattern, Exact):
            rows = np.flatnonzero(_mask(mask_of(topics, pattern)))
            found.append((rows, np.full(len(rows), number, np.int64)))
    return np.concatenate([rows for rows, _ in found]), np.concatenate([numbers for _, numbers in found])


def _numbers(array: pa.Array) -> Numbers:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.int64)


def _mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.to_numpy(zero_copy_only=False), bool)


# -- one topic -------------------------------------------------------------------------------------------


class Receivers(NamedTuple):
    """The receivers of a topic: spans that do not overlap for the same connection."""

    firsts: Numbers
    nexts: Numbers
    links: npt.NDArray[np.bool_]
    no_echo: list[Span]
    """Spans of connections without echo, except links."""


def merge(spans: Iterable[Span]) -> Receivers:
    by_connection: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_connection[span.connection].append(span)
    merged = [span for theirs in by_connection.values() for span in _merged(theirs)]
    return Receivers(
        np.array([span.first for span in merged], np.int64),
        np.array([span.next for span in merged], np.int64),
        np.array([span.link for span in merged], bool),
        [span for span in merged if not span.echo and not span.link],
    )


def _merged(spans: list[Span]) -> list[Span]:
    """Merges the spans of one connection: it receives a message once, however many of its patterns match."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.first):
        if merged and span.first <= merged[-1].next:
            merged[-1] = merged[-1]._replace(next=max(span.next, merged[-1].next))
        else:
            merged.append(span)
    return merged


class Sources(NamedTuple):
    """The publisher of each message, as an index into `names`."""

    numbers: Numbers
    names: Sequence[str]
    links: npt.NDArray[np.bool_]
    """Which names are links to other brokers."""


def count(offsets: Numbers, sources: Sources, receivers: Receivers) -> Numbers:
    """The number of receivers of each message of one topic."""
    total = _covering(offsets, receivers.firsts, receivers.nexts)
    linked = sources.links[sources.numbers]
    if receivers.links.any() and linked.any():
        links = _covering(offsets, receivers.firsts[receivers.links], receivers.nexts[receivers.links])
        total[linked] -= links[linked]
    for span in receivers.no_echo:
        if span.connection in sources.names:
            own = sources.numbers == sources.names.index(span.connection)
            total[own & (offsets >= span.first) & (offsets < span.next)] -= 1
    return total


def _covering(offsets: Numbers, firsts: Numbers, nexts: Numbers) -> Numbers:
    """The number of ranges that contain each offset. Offsets are ascending."""
    steps = np.zeros(len(offsets) + 1, np.int64)
    np.add.at(steps, np.searchsorted(offsets, firsts), 1)
    np.add.at(steps, np.searchsorted(offsets, nexts), -1)
    return steps.cumsum()[:-1]


# -- all topics ------------------------------------------------------------------------------------------


class TopicAudiences:
    """The receivers of all topics for fixed subscriptions, cached by topic."""

    def __init__(self, spans: Sequence[Span], links: Collection[str] = ()) -> None:
        self._links = frozenset(links)
        self._by_pattern: dict[Pattern, list[Span]] = defaultdict(list)
        for span in spans:
            self._by_pattern[span.pattern].append(span)
        self._known: dict[str, Receivers] = {}

    def sizes(self, batch: pa.RecordBatch) -> Numbers:
        """The number of receivers per message. The batch needs `offset`, `topic` and `source`."""
        topics, sources = batch["topic"].dictionary_encode(), batch["source"].dictionary_encode()
        names = topics.dictionary.to_pylist()
        self._look_up([name for name in names if name not in self._known])
        offsets, numbers = _numbers(batch["offset"]), _numbers(topics.indices)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(len(names) + 1))
        sizes = np.zeros(len(offsets), np.int64)
        publishers, source_names = _numbers(sources.indices), sources.dictionary.to_pylist()
        links = np.array([name in self._links for name in source_names], bool)
        for number, name in enumerate(names):
            rows = order[edges[number] : edges[number + 1]]
            sizes[rows] = count(offsets[rows], Sources(publishers[rows], source_names, links), self._known[name])
        return sizes

    def _look_up(self, topics: list[str]) -> None:
        patterns = list(self._by_pattern)
        spans: dict[int, list[Span]] = defaultdict(list)
        for topic, pattern in zip(*match(pa.array(topics, pa.string()), patterns), strict=True):
            spans[int(topic)] += self._by_pattern[patterns[int(pattern)]]
        self._known.update({name: merge(spans[number]) for number, name in enumerate(topics)})
