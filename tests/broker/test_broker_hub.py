"""The hub: receivers, order and sequences."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from broker.numbering import NumberingHub, Publication
from polycast.broker import Delivery
from polycast.broker.hub import readable_parts
from polycast.model import Burst, Contains, Encoder, Everything, Exact, Format, Pattern, Prefix
from polycast.routing import Subscriber

ENCODER = Encoder()
OTHER_ENCODER = Encoder()
Rows = list[tuple[bytes, bytes]]
NOT_UTF8 = b"\xff"


def burst_of(rows: Rows) -> Burst:
    return Burst.of("some", [(topic, payload, Format.BYTES) for topic, payload in rows])


def numbered(*topics: bytes) -> Burst:
    """A burst with distinct messages."""
    return burst_of([(topic, str(i).encode()) for i, topic in enumerate(topics)])


def received(deliveries: list[Delivery]) -> dict[Subscriber, Rows]:
    """The messages of each subscriber, in order."""
    found: dict[Subscriber, Rows] = defaultdict(list)
    for audience, burst, slices, skip in deliveries:
        rows = [row for start, stop in slices for row in rows_of(burst.cut(start, stop))]
        for subscriber, _ in audience.members:
            if subscriber is not skip:
                found[subscriber] += rows
    return dict(found)


def rows_of(burst: Burst) -> Rows:
    return [(message.topic.encode(), message.payload) for message in burst.messages()]


def publish(hub: NumberingHub, origin: Subscriber, *topics: bytes) -> dict[Subscriber, Rows]:
    return received(hub.publish(numbered(*topics), origin).deliveries)


# -- against brute force ---------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "ab", "abc", "c", "polycast/x"])
patterns: st.SearchStrategy[Pattern] = st.one_of(
    st.builds(Exact, names),
    st.builds(Prefix, st.sampled_from(["a", "ab", "polycast/"])),
    st.builds(Contains, st.sampled_from(["a", "b", "c", "polycast/"])),
    st.just(Everything()),
)
topics_of_a_burst = st.lists(names.map(str.encode), min_size=1, max_size=14)
bursts = st.lists(
    st.one_of(topics_of_a_burst, st.lists(st.sampled_from([b"a", b"b", b"c", NOT_UTF8]), min_size=1, max_size=10)),
    min_size=1,
    max_size=3,
)
subscriptions = st.lists(
    st.tuples(st.integers(0, 3), patterns, st.sampled_from([ENCODER, OTHER_ENCODER])), max_size=10
)


@given(subscriptions, bursts, st.integers(0, 3))
def test_every_subscriber_gets_its_messages_once_and_in_order(
    held: list[tuple[int, Pattern, Encoder]], sent: list[list[bytes]], source: int
) -> None:
    hub = NumberingHub()
    members = [hub.join(i, echo=i % 2 == 0, link=i == 3) for i in range(4)]
    for who, pattern, encoder in held:
        hub.subscribe(members[who], pattern, encoder)
    origin = members[source]
    for topics in sent:
        burst = numbered(*topics)
        publication = hub.publish(burst, origin)
        found = received(publication.deliveries)
        for member in members:
            assert found.get(member, []) == brute_force(member, origin, topics)
        assert publication.refused == topics.count(NOT_UTF8)
        assert publication.accepted == len(topics) - publication.refused


def brute_force(member: Subscriber, origin: Subscriber, topics: list[bytes]) -> Rows:
    if (member is origin and not origin.echo) or (member.link and origin.link):
        return []
    return [
        (topic, str(i).encode())
        for i, topic in enumerate(topics)
        if topic != NOT_UTF8 and any(pattern.matches(topic.decode()) for pattern in member.patterns)
    ]


@given(bursts)
def test_sequences_count_each_topic_from_zero(sent: list[list[bytes]]) -> None:
    hub = NumberingHub()
    origin = hub.join("publisher")
    expected: dict[bytes, int] = defaultdict(int)
    for topics in sent:
        burst = numbered(*[topic for topic in topics if topic != NOT_UTF8])
        if len(burst):
            hub.publish(burst, origin)
            assert len(burst.sequences) == len(burst.topics)
            for run, first, last in burst.runs():
                assert burst.sequences[run] == expected[burst.topics[run]]
                expected[burst.topics[run]] += last - first


# -- the rules, one by one -------------------------------------------------------------------------------


def test_several_matching_subscriptions_give_one_delivery() -> None:
    hub = NumberingHub()
    one, publisher = hub.join(1), hub.join(2)
    for pattern in (Exact("ab"), Prefix("a"), Contains("b"), Everything()):
        hub.subscribe(one, pattern, ENCODER)
    assert publish(hub, publisher, b"ab") == {one: [(b"ab", b"0")]}


def test_a_duplicate_subscription_is_none() -> None:
    hub = NumberingHub()
    one = hub.join(1)
    assert hub.subscribe(one, Exact("a"), ENCODER)
    assert not hub.subscribe(one, Exact("a"), ENCODER)
    assert not hub.subscribe(one, Exact("a"), OTHER_ENCODER)
    assert hub.unsubscribe(one, Exact("a"))
    assert publish(hub, hub.join(2), b"a") == {}


def test_unsubscribing_what_was_not_subscribed_is_nothing() -> None:
    hub = NumberingHub()
    one = hub.join(1)
    hub.subscribe(one, Everything(), ENCODER)
    assert not hub.unsubscribe(one, Exact("all"))
    assert publish(hub, hub.join(2), b"all") == {one: [(b"all", b"0")]}


def test_echo() -> None:
    hub = NumberingHub()
    loud, shy = hub.join("loud", echo=True), hub.join("shy", echo=False)
    for subscriber in (loud, shy):
        hub.subscribe(subscriber, Everything(), ENCODER)
    assert publish(hub, loud, b"a") == {loud: [(b"a", b"0")], shy: [(b"a", b"0")]}
    assert publish(hub, shy, b"a") == {loud: [(b"a", b"0")]}


def test_what_came_over_a_link_goes_to_no_link() -> None:
    hub = NumberingHub()
    client, one, two = hub.join(0), hub.join(1, False, link=True), hub.join(2, False, link=True)
    for subscriber in (client, one, two):
        hub.subscribe(subscriber, Everything(), ENCODER)
    assert set(publish(hub, one, b"a")) == {client}
    assert set(publish(hub, client, b"a")) == {client, one, two}


def test_messages_without_subscribers_are_numbered() -> None:
    hub = NumberingHub()
    burst = numbered(b"a", b"a", b"b")
    assert hub.publish(burst, hub.join(1)) == Publication([], [burst], 3, 0)
    assert (burst.sequences, burst.offset, hub.ledger.next_offset) == ([0, 0], 0, 3)
    again = numbered(b"b", b"a")
    hub.publish(again, hub.join(1))
    assert again.sequences == [1, 2]


def test_reserved_topics_need_a_reserved_pattern() -> None:
    hub = NumberingHub()
    curious, insider = hub.join(1), hub.join(2)
    hub.subscribe(curious, Everything(), ENCODER)
    hub.subscribe(curious, Contains("events"), ENCODER)
    hub.subscribe(insider, Prefix("polycast/"), ENCODER)
    assert set(publish(hub, hub.join(3), b"polycast/events/open")) == {insider}


def test_leaving_ends_everything() -> None:
    hub = NumberingHub()
    one, two = hub.join(1), hub.join(2)
    held: list[Pattern] = [Exact("a"), Prefix("a"), Contains("a"), Everything()]
    for pattern in held:
        hub.subscribe(one, pattern, ENCODER)
    hub.subscribe(two, Exact("a"), ENCODER)
    assert set(publish(hub, two, b"a")) == {one, two}
    assert hub.leave(one) == held
    assert one.patterns == {}
    assert set(publish(hub, two, b"a")) == {two}
    assert hub.leave(one) == []
    hub.leave(two)
    assert not any(len(shelf) for shelf in hub.router._index._tables.values())


class Owner:
    """A stand-in for a connection, with much memory."""


def test_topics_do_not_keep_subscribers_alive() -> None:
    hub = NumberingHub()
    one = hub.join(Owner())
    hub.subscribe(one, Everything(), ENCODER)
    publish(hub, hub.join("publisher"), b"once/in/a/lifetime")
    owner = weakref.ref(one.owner)
    hub.leave(one)
    del one
    gc.collect()
    assert owner() is None


def test_comparing_audiences_does_not_keep_subscribers_alive() -> None:
    hub = NumberingHub()
    one, two = hub.join(Owner()), hub.join(Owner())
    hub.subscribe(one, Exact("a"), ENCODER)
    hub.subscribe(two, Exact("b"), ENCODER)
    publish(hub, two, b"a", b"b", b"a", b"b")
    owner = weakref.ref(one.owner)
    hub.leave(one)
    publish(hub, two, b"a", b"b")
    del one
    gc.collect()
    assert owner() is None


# -- topics that cannot be read --------------------------------------------------------------------------


def test_topics_that_are_not_utf8_cost_only_themselves() -> None:
    hub = NumberingHub()
    one = hub.join(1)
    hub.subscribe(one, Everything(), ENCODER)
    burst = numbered(b"a", NOT_UTF8, NOT_UTF8, b"a", b"b", b"\xc3")
    publication = hub.publish(burst, hub.join(2))
    assert received(publication.deliveries) == {one: [(b"a", b"0"), (b"a", b"3"), (b"b", b"4")]}
    assert (publication.accepted, publication.refused) == (3, 3)


def test_nothing_but_topics_that_are_not_utf8() -> None:
    hub = NumberingHub()
    assert hub.publish(numbered(NOT_UTF8, NOT_UTF8), hub.join(1)) == Publication([], [], 0, 2)


@given(st.lists(st.sampled_from([b"a", b"b", NOT_UTF8]), min_size=1, max_size=12))
def test_readable_parts(topics: list[bytes]) -> None:
    burst = numbered(*topics)
    parts = readable_parts(burst)
    expected = [(topic, str(i).encode()) for i, topic in enumerate(topics) if topic != NOT_UTF8]
    assert [row for part in parts for row in rows_of(part)] == expected
    assert all(len(part) for part in parts)


# -- slices ----------------------------------------------------------------------------------------------


def slices_by_owner(hub: NumberingHub, *topics: bytes) -> list[tuple[set[object], list[tuple[int, int]]]]:
    publication = hub.publish(numbered(*topics), hub.join("publisher"))
    return [({s.owner for s, _ in d.audience.members}, list(d.slices)) for d in publication.deliveries]


def test_adjacent_messages_with_one_audience_are_one_slice() -> None:
    hub = NumberingHub()
    hub.subscribe(hub.join(1), Everything(), ENCODER)
    assert slices_by_owner(hub, b"a", b"b", b"b", b"c") == [({1}, [(0, 4)])]


def test_slices_of_disjoint_audiences_are_joined() -> None:
    hub = NumberingHub()
    hub.subscribe(hub.join(1), Exact("a"), ENCODER)
    hub.subscribe(hub.join(2), Exact("b"), ENCODER)
    found = slices_by_owner(hub, b"a", b"b", b"a", b"nobody", b"b", b"a")
    assert found == [({1}, [(0, 1), (2, 3), (5, 6)]), ({2}, [(1, 2), (4, 5)])]


def test_slices_are_not_joined_if_a_subscriber_would_see_another_order() -> None:
    hub = NumberingHub()
    both = hub.join(3)
    hub.subscribe(hub.join(1), Exact("a"), ENCODER)
    hub.subscribe(hub.join(2), Exact("b"), ENCODER)
    hub.subscribe(both, Everything(), ENCODER)
    found = slices_by_owner(hub, b"a", b"b", b"a")
    assert found == [({1, 3}, [(0, 1)]), ({2, 3}, [(1, 2)]), ({1, 3}, [(2, 3)])]


# -- a small table of topics -----------------------------------------------------------------------------


def test_the_table_of_topics_is_bounded() -> None:
    hub = NumberingHub(topics=10)
    origin = hub.join(1)
    for i in range(100):
        publish(hub, origin, b"topic %d" % i)
        assert len(hub.router.topics) <= 10
    publish(hub, origin, *[b"topic %d" % i for i in range(50)])
    for i in range(20):
        publish(hub, origin, b"another %d" % i)
    assert len(hub.router.topics) <= 10


def test_no_sequence_twice_in_a_burst_with_more_topics_than_the_table_holds() -> None:
    hub = NumberingHub(topics=2)
    burst = numbered(b"a", b"b", b"c", b"a")
    hub.publish(burst, hub.join(1))
    assert burst.sequences[3] > burst.sequences[0]


@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), min_size=1, max_size=40), st.integers(2, 6))
def test_no_sequence_twice_with_a_small_table(topics: list[bytes], capacity: int) -> None:
    hub = NumberingHub(capacity)
    origin = hub.join(1)
    last: dict[bytes, int] = defaultdict(lambda: -1)
    for topic in topics:
        burst = numbered(topic)
        hub.publish(burst, origin)
        assert burst.sequences[0] > last[topic]
        last[topic] = burst.sequences[0]
