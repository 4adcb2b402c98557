"""Many subscriptions are added, match and are removed; the tables are empty afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from polycast.model import Contains, Encoder, Everything, Exact, Pattern, Prefix
from polycast.routing import Subscriber, are_disjoint
from polycast.routing.audience import Audience
from polycast.routing.index import PatternIndex

MANY = 100_000
ENCODER = Encoder()

KINDS: dict[str, Callable[[int], Pattern]] = {
    "exact": lambda i: Exact(f"sensors/{i}/temperature"),
    "prefix": lambda i: Prefix(f"sensors/{i}/"),
    "contains": lambda i: Contains(f"s/{i}/" + "temperature"[: i % 12]),
}


def owners(index: PatternIndex, topic: str) -> set[int]:
    return {subscriber.owner for subscriber, _ in index.match(topic).members}


@pytest.mark.parametrize("kind", KINDS)
def test_many_subscriptions(kind: str) -> None:
    index = PatternIndex()
    held = [(Subscriber(i), KINDS[kind](i)) for i in range(MANY)]
    for subscriber, pattern in held:
        index.add(subscriber, pattern, ENCODER)
    topic = "sensors/4711/temperature"
    assert {s.owner for s, pattern in held if pattern.matches(topic)} == {4_711}
    for i in range(0, MANY, 1_000):
        assert owners(index, f"sensors/{i}/temperature") == {i}
    assert owners(index, f"sensors/{MANY}/temperature") == set()
    for subscriber, pattern in held[::2]:
        index.remove(subscriber, pattern)
    assert owners(index, topic) == {4_711}
    assert owners(index, "sensors/4712/temperature") == set()
    for subscriber, pattern in held[1::2]:
        index.remove(subscriber, pattern)
    assert owners(index, topic) == set()
    assert_empty(index)


def test_many_subscribers_of_everything() -> None:
    index = PatternIndex()
    subscribers = [Subscriber(i) for i in range(MANY)]
    for subscriber in subscribers:
        index.add(subscriber, Everything(), ENCODER)
    assert len(index.match("anything").members) == MANY
    assert index.match("polycast/events").members == frozenset()
    for subscriber in subscribers:
        index.remove(subscriber, Everything())
    assert_empty(index)


def test_many_subscribers_of_one_pattern() -> None:
    for pattern in (Exact("topic"), Prefix("to"), Contains("pi")):
        index = PatternIndex()
        subscribers = [Subscriber(i) for i in range(1000)]
        for subscriber in subscribers:
            index.add(subscriber, pattern, ENCODER)
        for subscriber in subscribers[:-1]:
            index.remove(subscriber, pattern)
        assert owners(index, "topic") == {999}
        index.remove(subscribers[-1], pattern)
        assert_empty(index)


def assert_empty(index: PatternIndex) -> None:
    assert not index._everything
    for kind, shelf in index._tables.items():
        assert len(shelf) == 0
        assert not any(vars(shelf).values()), f"the shelf of {kind.__name__} keeps something"


# -- disjoint audiences ----------------------------------------------------------------------------------


def test_disjoint() -> None:
    one, two, three = (Subscriber(i) for i in range(3))
    a, b, c = (Audience(frozenset((s, ENCODER) for s in group)) for group in ([one], [two, three], [three]))
    assert are_disjoint(frozenset([a, b]))
    assert are_disjoint(frozenset([a, c]))
    assert not are_disjoint(frozenset([b, c]))
    assert not are_disjoint(frozenset([a, b, c]))


def test_one_subscriber_with_two_encoders_is_not_disjoint() -> None:
    one = Subscriber(1)
    a, b = Audience(frozenset([(one, ENCODER)])), Audience(frozenset([(one, Encoder())]))
    assert not are_disjoint(frozenset([a, b]))


def test_the_empty_substring_is_in_the_empty_topic() -> None:
    index = PatternIndex()
    index.add(Subscriber(1), Contains(""), ENCODER)
    assert owners(index, "") == owners(index, "a") == {1}
