"""The example of nn_pubsub(7), and the statements of that page."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.wire import GUARD_SECONDS
from nanomsg.socket_pairs import SCHEMES, join, pair, place, take
from polycast.nanomsg import PUB, SUB, Socket


@pytest.mark.parametrize("binds", ["pub", "sub"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_example(scheme: str, binds: str, tmp_path: Path) -> None:
    with Socket(PUB) as pub, Socket(SUB) as sub:
        sub.subscribe(b"foo")
        sub.subscribe(b"bar")
        join(pub, sub, place(scheme, tmp_path), binds)

        count = pub.send(b"foo|Hello!")
        assert count == 10
        message = sub.recv(GUARD_SECONDS)
        assert len(message) == 10
        assert message == b"foo|Hello!"

        count = pub.send(b"baz|World!")
        assert count == 10
        pub.send(b"bar|behind it")
        assert sub.recv(GUARD_SECONDS) == b"bar|behind it"
        with pytest.raises(TimeoutError):
            sub.recv(timeout=0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_messages_come_whole_and_in_order(scheme: str, tmp_path: Path) -> None:
    messages = [b"", b"x", b"|", b"topic|", bytes(range(256)), b"\xff" * 70_000, *(b"%d" % n for n in range(5000))]
    with pair(place(scheme, tmp_path), b"") as (pub, sub):
        for message in messages:
            assert pub.send(message) == len(message)
        assert take(sub, len(messages)) == messages


def test_a_new_socket_receives_nothing(tmp_path: Path) -> None:
    with pair(place("tcp", tmp_path)) as (pub, sub):
        pub.send(b"before anything was subscribed to")
        with pytest.raises(TimeoutError):
            sub.recv(timeout=0.1)
        sub.subscribe(b"")
        pub.send(b"after")
        assert sub.recv(GUARD_SECONDS) == b"after"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_everybody_gets_everything(scheme: str, tmp_path: Path) -> None:
    subs = [Socket(SUB) for _ in range(20)]
    with Socket(PUB) as pub:
        url = pub.bind(place(scheme, tmp_path))
        for number, sub in enumerate(subs):
            sub.subscribe(b"all")
            sub.subscribe(b"%d|" % number)
            sub.connect(url)
        pub.wait_for_peers(len(subs), GUARD_SECONDS)
        for number in range(len(subs)):
            pub.send(b"%d|for you" % number)
        pub.send(b"all of you")
        for number, sub in enumerate(subs):
            assert take(sub, 2) == [b"%d|for you" % number, b"all of you"]
            sub.close()


def test_one_socket_at_many_addresses(tmp_path: Path) -> None:
    """Bound and connected on every transport at once, to several others."""
    with Socket(SUB) as sub:
        sub.subscribe(b"")
        bound = [sub.bind(place(scheme, tmp_path)) for scheme in SCHEMES]
        pubs = [Socket(PUB) for _ in range(2 * len(SCHEMES))]
        for pub, url in zip(pubs, bound, strict=False):
            pub.connect(url)
        for pub, scheme in zip(pubs[len(bound) :], SCHEMES, strict=True):
            sub.connect(pub.bind(place(scheme, tmp_path)))
        for number, pub in enumerate(pubs):
            pub.wait_for_peers(1, GUARD_SECONDS)
            pub.send(b"%d" % number)
        assert sorted(take(sub, len(pubs))) == sorted(b"%d" % number for number in range(len(pubs)))
        assert sub.peers == len(pubs)
        for pub in pubs:
            pub.close()


def test_no_peer() -> None:
    with Socket(PUB) as pub:
        assert pub.send(b"into the void") == 13
        pub.bind("tcp://127.0.0.1:0")
        assert pub.send(b"still nobody") == 12
        assert (pub.peers, pub.missed) == (0, 0)


def test_bytes_like_objects() -> None:
    with Socket(PUB) as pub:
        assert pub.send(bytearray(b"abc")) == 3
        assert pub.send(memoryview(b"abcd")) == 4
