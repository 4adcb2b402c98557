"""Receivers reconstructed from the log equal those of the patterns and of the hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from broker.numbering import NumberingHub
from polycast.model import Burst, Contains, Encoded, Encoder, Everything, Exact, Format, Pattern, Prefix, Slices
from polycast.pipelines.deliveries.matching import Span, TopicAudiences, match, merge, to_spans
from polycast.pipelines.deliveries.subscription_history import (
    EVENTS,
    BrokerEvent,
    LoggedEvent,
    SubscriptionHistory,
    to_events,
)
from polycast.routing import Subscriber

ALPHABET = "ab./é"
NAMES = ["polycast/", "polycast/a", "polycast", "apolycast/", "a", "ab", "a.b"]

values = st.one_of(st.text(ALPHABET, max_size=3), st.sampled_from(NAMES))
topics = st.one_of(st.text(ALPHABET, max_size=5), st.sampled_from(NAMES), values.map("polycast/".__add__))
patterns: st.SearchStrategy[Pattern] = st.one_of(
    st.builds(Exact, values), st.builds(Prefix, values), st.builds(Contains, values), st.just(Everything())
)


@given(st.lists(topics, unique=True, max_size=12), st.lists(patterns, unique=True, max_size=8))
def test_matching_pairs(names: list[str], several: list[Pattern]) -> None:
    rows, numbers = match(pa.array(names, pa.string()), several)
    found = sorted(zip(rows.tolist(), numbers.tolist(), strict=True))
    wanted = [(n, p) for n, name in enumerate(names) for p, one in enumerate(several) if one.matches(name)]
    assert found == wanted


# -- compared with the hub -------------------------------------------------------------------------------


class Plain(Encoder):
    name = "plain"

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        raise NotImplementedError


PLAIN = Plain()
CONNECTIONS = {
    "#1 a:1": ("hermod.sub", True, False),
    "#2 a:2": ("simplest", False, False),
    "#3 a:3": ("simplest", False, False),
    "#4 a:4": ("simplest.peer", False, True),
    "#5 a:5": ("simplest.peer", False, True),
}
"""Listener, echo and link of each connection."""

names_of_connections = st.sampled_from(list(CONNECTIONS))
steps = st.one_of(
    st.tuples(st.just("subscribe"), names_of_connections, patterns),
    st.tuples(st.just("unsubscribe"), names_of_connections, patterns),
    st.tuples(st.just("publish"), names_of_connections, topics),
    st.tuples(st.just("publish"), names_of_connections, topics),
    st.tuples(st.just("disconnect"), names_of_connections, st.none()),
    st.tuples(st.just("start"), names_of_connections, st.none()),
)


class Model:
    """A hub, and the log that its broker would write."""

    def __init__(self) -> None:
        self.events: list[LoggedEvent] = []
        self.messages: list[tuple[int, str, str]] = []
        self.sizes: list[int] = []
        self.offset = 0
        self._begin()

    def _begin(self) -> None:
        self.hub = NumberingHub()
        self.joined = {name: self._join(name) for name in CONNECTIONS}

    def _join(self, name: str) -> Subscriber:
        self._record("connect", name, None)
        self.offset += 1
        _, echo, link = CONNECTIONS[name]
        return self.hub.join(name, echo, link)

    def take(self, action: str, name: str, what: Any) -> None:
        if action == "publish":
            self._publish(name, what)
        else:
            self._record(action, name, what)
            self.offset += 1
            self._change(action, self.joined[name], what)

    def _change(self, action: str, who: Subscriber, what: Any) -> None:
        match action:
            case "subscribe":
                self.hub.subscribe(who, what, PLAIN)
            case "unsubscribe":
                self.hub.unsubscribe(who, what)
            case "disconnect":
                name = who.owner
                self.hub.leave(who)
                self.joined[name] = self._join(name)
            case "start":
                self._begin()

    def _record(self, action: str, name: str, pattern: Pattern | None) -> None:
        kind, value = (type(pattern).__name__.lower(), pattern.value) if pattern else ("", "")
        listener, echo, _ = CONNECTIONS[name]
        event = BrokerEvent(name, listener=listener, pattern=str(pattern), kind=kind, value=value, echo=echo)
        self.events.append(LoggedEvent(self.offset, 0, action, event))

    def _publish(self, name: str, topic: str) -> None:
        burst = Burst.of("hermod", [(topic.encode(), b"", Format.BYTES)])
        receivers = [
            member.owner
            for delivery in self.hub.publish(burst, self.joined[name]).deliveries
            for member, _ in delivery.audience.members
            if member is not delivery.skip
        ]
        self.messages.append((self.offset, topic, name))
        self.sizes.append(len(receivers))
        self.offset += 1


def to_batch(messages: Sequence[tuple[int, str, str]]) -> pa.RecordBatch:
    columns = list(zip(*messages, strict=True)) or [(), (), ()]
    types = [pa.int64(), pa.string(), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["offset", "topic", "source"])


@given(st.lists(steps, max_size=60))
def test_receivers_match_the_hub(taken: list[tuple[str, str, Any]]) -> None:
    model, known = Model(), SubscriptionHistory()
    for step in taken:
        model.take(*step)
    for logged in model.events:
        known.take(logged)
    found = TopicAudiences(to_spans(known.all()), known.links).sizes(to_batch(model.messages))
    assert found.tolist() == model.sizes


@given(st.lists(steps, max_size=40), st.data())
def test_history_can_be_read_in_two_parts(taken: list[tuple[str, str, Any]], data: st.DataObject) -> None:
    model, known = Model(), SubscriptionHistory()
    for step in taken:
        model.take(*step)
    cut = data.draw(st.integers(0, model.offset))
    sizes: list[int] = []
    for low, high in ((0, cut), (cut, model.offset)):
        known.forget_ended()
        for logged in model.events:
            if low <= logged.offset < high:
                known.take(logged)
        restored = msgspec.json.decode(msgspec.json.encode(known), type=SubscriptionHistory)
        part = [message for message in model.messages if low <= message[0] < high]
        sizes += TopicAudiences(to_spans(restored.all()), restored.links).sizes(to_batch(part)).tolist()
    assert sizes == model.sizes


# -- examples --------------------------------------------------------------------------------------------


def test_two_patterns_of_one_connection_count_once() -> None:
    one = Span("c", Exact("a"), 3, 10)
    found = merge([one, one._replace(pattern=Everything(), first=5, next=20), one._replace(connection="d")])
    assert sorted(zip(found.firsts.tolist(), found.nexts.tolist(), strict=True)) == [(3, 10), (3, 20)]


def test_invalid_events_are_skipped() -> None:
    payloads = [b'{"connection":"c"}', b"{", b"[]", b'{"connection":7}', b"\xff"]
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(5), pa.int64()),
            "topic": pa.array([EVENTS + "disconnect"] * 5),
            "time": pa.array([7] * 5, pa.timestamp("us", tz="UTC")),
            "payload": pa.array(payloads, pa.binary()),
            "source": pa.array(["polycast"] * 5),
        }
    )
    assert list(to_events(batch)) == [LoggedEvent(0, 7, "disconnect", BrokerEvent("c"))]


def test_events_of_nodes_end_the_subscriptions_of_their_connections() -> None:
    sources = ["polycast@a", "polycast@b", "polycast#1", "polycast@b"]
    events = [("subscribe", "a#1"), ("subscribe", "b#1"), ("disconnect", "a#1"), ("start", "")]
    payload = '{"connection":"%s","kind":"exact","value":"t","pattern":"t"}'
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(4), pa.int64()),
            "topic": pa.array([EVENTS + name for name, _ in events]),
            "time": pa.array([7] * 4, pa.timestamp("us", tz="UTC")),
            "payload": pa.array([(payload % connection).encode() for _, connection in events], pa.binary()),
            "source": pa.array(sources),
        }
    )
    known = SubscriptionHistory()
    for logged in to_events(batch):
        known.take(logged)
    assert list(known.open) == ["a#1"]
    assert [(each.connection, each.until) for each in known.ended] == [("b#1", 3)]


def test_known_from() -> None:
    known = SubscriptionHistory()
    subscribe = BrokerEvent("c", kind="exact", value="a", pattern="a")
    known.take(LoggedEvent(4, 0, "subscribe", subscribe))
    assert (known.known_from, known.next) == (None, 5)
    known.take(LoggedEvent(9, 0, "start", BrokerEvent()))
    known.take(LoggedEvent(10, 0, "subscribe", subscribe))
    known.take(LoggedEvent(11, 0, "stop", BrokerEvent()))
    assert (known.known_from, known.next) == (9, 12)
    assert Counter((each.since, each.until) for each in known.all()) == {(4, 9): 1, (10, 11): 1}
