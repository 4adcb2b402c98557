"""Subscriptions: prefixes of bytes, counted as in nanomsg."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.wire import GUARD_SECONDS
from nanomsg.socket_pairs import pair, place, take
from polycast.nanomsg import Socket


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[tuple[Socket, Socket]]:
    with pair(place("inproc", tmp_path), b"fence") as pair_:
        yield pair_


def received(sockets: tuple[Socket, Socket], *messages: bytes) -> list[bytes]:
    """The received part of these messages."""
    pub, sub = sockets
    for message in messages:
        pub.send(message)
    pub.send(b"fence")
    got: list[bytes] = []
    while (message := sub.recv(GUARD_SECONDS)) != b"fence":
        got.append(message)
    return got


def test_a_topic_is_how_a_message_begins(sockets: tuple[Socket, Socket]) -> None:
    sockets[1].subscribe(b"Hello")
    sent = [b"Hello, World!", b"Hello", b"Hell", b"hello", b" Hello", b"", b"HelloHello"]
    assert received(sockets, *sent) == [b"Hello, World!", b"Hello", b"HelloHello"]


def test_no_bytes_match_every_message(sockets: tuple[Socket, Socket]) -> None:
    sockets[1].subscribe(b"")
    assert received(sockets, b"x", b"", b"\0") == [b"x", b"", b"\0"]


def test_bytes_are_no_text(sockets: tuple[Socket, Socket]) -> None:
    sockets[1].subscribe(b"\xff\0")
    assert received(sockets, b"\xff\0\0", b"\xff", b"\xff\x01") == [b"\xff\0\0"]


def test_two_matching_subscriptions_deliver_once(sockets: tuple[Socket, Socket]) -> None:
    for topic in (b"a", b"ab", b"ab", b""):
        sockets[1].subscribe(topic)
    assert received(sockets, b"abc") == [b"abc"]


def test_unsubscribe(sockets: tuple[Socket, Socket]) -> None:
    sub = sockets[1]
    sub.subscribe(b"a")
    sub.subscribe(b"b")
    sub.unsubscribe(b"a")
    assert received(sockets, b"a1", b"b1") == [b"b1"]


def test_twice_subscribed_is_twice_to_unsubscribe(sockets: tuple[Socket, Socket]) -> None:
    sub = sockets[1]
    sub.subscribe(b"a")
    sub.subscribe(b"a")
    sub.unsubscribe(b"a")
    assert received(sockets, b"a1") == [b"a1"]
    sub.unsubscribe(b"a")
    assert received(sockets, b"a2") == []


def test_unsubscribing_an_unknown_topic(sockets: tuple[Socket, Socket]) -> None:
    sub = sockets[1]
    sub.unsubscribe(b"never")
    sub.subscribe(b"never")
    assert received(sockets, b"never mind") == [b"never mind"]


def test_a_longer_topic_does_not_end_a_shorter_one(sockets: tuple[Socket, Socket]) -> None:
    sub = sockets[1]
    sub.subscribe(b"a")
    sub.subscribe(b"abc")
    sub.unsubscribe(b"abc")
    assert received(sockets, b"abcd") == [b"abcd"]


def test_unsubscribing_drops_queued_messages(tmp_path: Path) -> None:
    with pair(place("inproc", tmp_path), b"a", b"b", b"fence") as (pub, sub):
        for message in (b"fence", b"a1", b"b1", b"a2", b"b2", b"fence"):
            pub.send(message)
        assert sub.recv(GUARD_SECONDS) == b"fence"
        assert sub.recv(GUARD_SECONDS) == b"a1"
        sub.unsubscribe(b"a")
        assert take(sub, 3) == [b"b1", b"b2", b"fence"]


def test_many_topics_equal_brute_force(sockets: tuple[Socket, Socket]) -> None:
    chance = random.Random(3)
    words = [bytes(chance.choices(b"ab", k=chance.randint(1, 7))) for _ in range(40)]
    for word in words:
        sockets[1].subscribe(word)
    sent = [bytes(chance.choices(b"ab", k=chance.randint(0, 9))) for _ in range(500)]
    assert received(sockets, *sent) == [message for message in sent if message.startswith(tuple(words))]


def test_a_topic_is_bytes(sockets: tuple[Socket, Socket]) -> None:
    with pytest.raises(TypeError):
        sockets[1].subscribe("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sockets[0].send("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sockets[0].send(5)  # type: ignore[arg-type]
