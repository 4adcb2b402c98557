"""Subscribers of `hermod` that publish, too: everything in its turn, and in the end nothing is buffered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.subscriber import A, Subscriber, group, one, read_groups
from kit import hermod

MESSAGE = hermod.message("a", b"x")


def test_withheld_messages_come_before_own_publications() -> None:
    subscriber = Subscriber(hermod.topics("a", window=2))
    assert subscriber.publish(A, A, A) == one("a", 0) + one("a", 1)
    assert subscriber.send(MESSAGE + hermod.OK * 2) == one("a", 2) + one("a", 3)


def test_an_ok_acknowledges_messages_sent_before_it() -> None:
    subscriber = Subscriber(hermod.topics("a", window=1))
    assert subscriber.send(hermod.OK + MESSAGE + MESSAGE) == one("a", 0)
    assert subscriber.send(MESSAGE + hermod.acknowledgement("a", 0) + MESSAGE) == one("a", 1)
    assert subscriber.send(hermod.OK * 4) == one("a", 2)


@pytest.mark.parametrize("more", [{"window": 3}, {"window": 0}])
def test_a_new_window_applies_from_its_header_on(more: dict[str, object]) -> None:
    subscriber = Subscriber(hermod.topics("a", window=1))
    subscriber.publish(A, A)
    assert subscriber.send(MESSAGE + hermod.topics(**more)) == one("a", 1) + one("a", 2)


def test_a_new_batch_applies_from_its_header_on() -> None:
    subscriber = Subscriber(hermod.topics("a", batch=1))
    sent = subscriber.send(MESSAGE * 2 + hermod.topics(batch=2) + MESSAGE * 2)
    assert sent == group(one("a", 0)) + group(one("a", 1)) + group(one("a", 2), one("a", 3))


text = st.sampled_from(
    [MESSAGE, MESSAGE, hermod.OK, hermod.topics(window=1), hermod.topics(window=3), hermod.topics(batch=2)]
)


@given(st.lists(st.one_of(text, st.none()), max_size=30), st.integers(1, 4))
def test_sequences_always_rise(happens: list[bytes | None], together: int) -> None:
    """Where it says None, somebody else publishes."""
    subscriber = Subscriber(hermod.topics("a", window=2))
    sent = b""
    for first in range(0, len(happens), together):
        part = happens[first : first + together]
        sent += subscriber.send(b"".join(words for words in part if words))
        sent += b"".join(subscriber.publish(A) for words in part if words is None)
    sent += subscriber.send(hermod.topics(window=0))
    numbers = [place[1] for places in read_groups(sent) for place in places]
    assert numbers == list(range(sum(words in (MESSAGE, None) for words in happens)))


# -- the end ---------------------------------------------------------------------------------------------


def test_nothing_is_held_for_a_closed_connection() -> None:
    subscriber = Subscriber(hermod.topics("a", window=1))
    subscriber.publish(A, ("a", b"y" * 1000))
    subscriber.session.close()
    assert subscriber.session.withheld_bytes == 0
    assert subscriber.publish(A, A) == b""
    assert subscriber.session.withheld_bytes == 0
    assert subscriber.send(hermod.OK + hermod.topics(window=0)) == b""


def test_a_connection_without_a_window_can_close() -> None:
    subscriber = Subscriber(hermod.topics("a"))
    subscriber.session.close()
    assert subscriber.publish(A) == one("a", 0), "the form of all others goes on"
