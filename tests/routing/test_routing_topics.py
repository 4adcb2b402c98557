"""The table of topics: bounded, and no sequence twice."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.routing.topics import Topics

Uses = list[tuple[int, int]]
"""Which topic, and how many messages it gets."""

capacities = st.integers(2, 12)
uses = st.lists(st.tuples(st.integers(0, 15), st.integers(1, 3)), max_size=120)


def key_of(number: int) -> bytes:
    return f"topic {number}".encode()


def publish(topics: Topics, number: int, count: int) -> range:
    """The sequences of this many messages of one topic."""
    topic = topics.use(key_of(number))
    first = topic.next_sequence
    topic.next_sequence += count
    topics.trim()
    return range(first, first + count)


@given(capacities, uses)
def test_no_sequence_comes_twice(capacity: int, steps: Uses) -> None:
    topics = Topics(capacity)
    last: dict[int, int] = defaultdict(lambda: -1)
    for number, count in steps:
        sequences = publish(topics, number, count)
        assert sequences[0] > last[number]
        last[number] = sequences[-1]


@given(capacities, uses)
def test_the_table_is_bounded_and_counts_forgotten_topics(capacity: int, steps: Uses) -> None:
    topics = Topics(capacity)
    made = 0
    for number, count in steps:
        made += topics.get(key_of(number)) is None
        publish(topics, number, count)
        assert len(topics) <= capacity
        assert len(topics) == made - topics.forgotten


@given(capacities, uses)
def test_the_floor_never_falls(capacity: int, steps: Uses) -> None:
    topics = Topics(capacity)
    floor = 0
    for number, count in steps:
        publish(topics, number, count)
        assert topics.floor >= floor
        floor = topics.floor


def test_topics_within_the_capacity_stay() -> None:
    topics = Topics(10)
    for _ in range(3):
        for number in range(5):
            publish(topics, number, 1)
    assert [publish(topics, number, 1)[0] for number in range(5)] == [3] * 5
    assert (topics.floor, topics.forgotten) == (0, 0)


def test_used_topics_stay() -> None:
    topics = Topics(4)
    for number in range(1, 100):
        assert publish(topics, 0, 1) == range(number - 1, number)
        publish(topics, number, 1)
    assert topics.get(key_of(0)) is not None
    assert topics.get(key_of(1)) is None


def test_the_floor_rises_above_forgotten_sequences() -> None:
    topics = Topics(4)
    publish(topics, 0, 7)
    for number in range(1, 6):
        publish(topics, number, 1)
    assert topics.get(key_of(0)) is None
    assert topics.floor == 7
    assert publish(topics, 0, 1) == range(7, 8)


def test_get_does_not_count_as_use() -> None:
    topics = Topics(4)
    publish(topics, 0, 1)
    for number in range(1, 5):
        publish(topics, number, 1)
        topics.get(key_of(0))
    assert topics.get(key_of(0)) is None


def test_get_creates_no_topic() -> None:
    topics = Topics(4)
    assert topics.get(b"new") is None
    assert len(topics) == 0


def test_a_key_that_is_not_utf8() -> None:
    topics = Topics(4)
    with pytest.raises(UnicodeDecodeError):
        topics.use(b"\xff")
    assert len(topics) == 0
