"""Expected bytes against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.bench.expected_bytes import ExpectedBytes, count_digits


@given(st.integers(0, 10**7), st.integers(0, 2000))
def test_count_digits_equals_brute_force(first: int, count: int) -> None:
    assert count_digits(first, count) == len("".join(map(str, range(first, first + count))))


@pytest.mark.parametrize(("first", "digits"), [(0, 3), (8, 4), (9, 5), (98, 7), (99, 8), (999_998, 19)])
def test_three_numbers(first: int, digits: int) -> None:
    assert count_digits(first, 3) == digits


def test_without_sequences_a_cycle_is_a_cycle() -> None:
    assert ExpectedBytes(110).expected(7) == 770


def test_every_topic_is_counted_from_its_sequence() -> None:
    per_subscriber = ExpectedBytes.numbered(100, [8, 8, 99])
    assert per_subscriber.expected(0) == 0
    assert per_subscriber.expected(1) == 100 + 1 + 1 + 2
    assert per_subscriber.expected(3) == 300 + 4 + 4 + 8


def test_the_order_of_topics_does_not_matter() -> None:
    assert ExpectedBytes.numbered(100, [8, 99, 8]) == ExpectedBytes.numbered(100, [99, 8, 8])
