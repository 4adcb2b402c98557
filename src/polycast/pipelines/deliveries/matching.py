"""Who hears what, over columns: the rules of the router, a batch of messages at a time.

    topics x patterns     each distinct topic with each distinct pattern, by the rules of `polycast.model`
    spans                 from which offset to which a connection hears a topic, however many patterns say so
    sizes                 how many connections hear each message: sums over spans, never a row per delivery

A connection without echo does not hear itself, and what came over a link to another broker goes over no link.
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
    """A subscription as it counts here: in force for offsets from `first` up to `next`."""

    connection: str
    pattern: Pattern
    first: int
    next: int
    echo: bool = True
    link: bool = False
    """To another broker."""


def to_spans(subscriptions: Iterable[Subscription]) -> list[Span]:
    return [
        Span(each.connection, each.to_pattern(), each.since + 1, each.until, each.echo, each.link)
        for each in subscriptions
    ]


def match(topics: pa.Array, patterns: Sequence[Pattern]) -> tuple[Numbers, Numbers]:
    """Each pair that matches, as the number of the topic and that of the pattern. Topics are distinct."""
    exact = [number for number, pattern in enumerate(patterns) if isinstance(pattern, Exact)]
    values = pa.array([patterns[number].value for number in exact], pa.string())
    places = pc.index_in(values, value_set=topics)
    found = [(_numbers(places.drop_null()), np.array(exact, np.int64)[_mask(places.is_valid())])]
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
    """Of a topic: spans that no longer overlap for any one connection."""

    firsts: Numbers
    nexts: Numbers
    links: npt.NDArray[np.bool_]
    no_echo: list[Span]
    """Those who do not hear themselves, and are no links."""


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
    """Of one connection: it gets a message once, however many of its patterns match."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.first):
        if merged and span.first <= merged[-1].next:
            merged[-1] = merged[-1]._replace(next=max(span.next, merged[-1].next))
        else:
            merged.append(span)
    return merged


class Sources(NamedTuple):
    """Who published each message: a number of `names`."""

    numbers: Numbers
    names: Sequence[str]
    links: npt.NDArray[np.bool_]
    """Which of the names are links to other brokers."""


def count(offsets: Numbers, sources: Sources, receivers: Receivers) -> Numbers:
    """How many hear each message of one topic."""
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
    """How many of these stretches each offset lies in. Offsets rise."""
    steps = np.zeros(len(offsets) + 1, np.int64)
    np.add.at(steps, np.searchsorted(offsets, firsts), 1)
    np.add.at(steps, np.searchsorted(offsets, nexts), -1)
    return steps.cumsum()[:-1]


# -- all topics ------------------------------------------------------------------------------------------


class TopicAudiences:
    """Of all topics, while these subscriptions are what counts. Each topic is looked up once."""

    def __init__(self, spans: Sequence[Span], links: Collection[str] = ()) -> None:
        self._links = frozenset(links)
        self._by_pattern: dict[Pattern, list[Span]] = defaultdict(list)
        for span in spans:
            self._by_pattern[span.pattern].append(span)
        self._known: dict[str, Receivers] = {}

    def sizes(self, batch: pa.RecordBatch) -> Numbers:
        """How many connections hear each message; of the batch `offset`, `topic` and `source` are needed."""
        topics, sources = batch["topic"].dictionary_encode(), batch["source"].dictionary_encode()
        names = topics.dictionary.to_pylist()
        self._look_up([name for name in names if name not in self._known])
        offsets, numbers = _numbers(batch["offset"]), _numbers(topics.indices)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(len(names) + 1))
        sizes = np.zeros(len(offsets), np.int64)
        who, names_of_sources = _numbers(sources.indices), sources.dictionary.to_pylist()
        links = np.array([name in self._links for name in names_of_sources], bool)
        for number, name in enumerate(names):
            rows = order[edges[number] : edges[number + 1]]
            sizes[rows] = count(offsets[rows], Sources(who[rows], names_of_sources, links), self._known[name])
        return sizes

    def _look_up(self, topics: list[str]) -> None:
        patterns = list(self._by_pattern)
        spans: dict[int, list[Span]] = defaultdict(list)
        for topic, pattern in zip(*match(pa.array(topics, pa.string()), patterns), strict=True):
            spans[int(topic)] += self._by_pattern[patterns[int(pattern)]]
        self._known.update({name: merge(spans[number]) for number, name in enumerate(topics)})
