"""Errors: the errno that nanomsg sets, and timeouts."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from nanomsg.socket_pairs import SCHEMES, place
from polycast.errors import UsageError
from polycast.nanomsg import PUB, SUB, Socket

EVERYTHING: dict[str, Callable[[Socket], object]] = {
    "bind": lambda s: s.bind("tcp://127.0.0.1:0"),
    "connect": lambda s: s.connect("tcp://127.0.0.1:1"),
    "send": lambda s: s.send(b"x"),
    "recv": lambda s: s.recv(),
    "subscribe": lambda s: s.subscribe(b"x"),
    "unsubscribe": lambda s: s.unsubscribe(b"x"),
    "wait_for_peers": lambda s: s.wait_for_peers(1, 0),
}


def number_of(work: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:
        work()
    return caught.value.errno


def test_a_sub_cannot_send_and_a_pub_cannot_receive() -> None:
    with Socket(PUB) as pub, Socket(SUB) as sub:
        assert number_of(lambda: sub.send(b"x")) == errno.ENOTSUP
        assert number_of(lambda: pub.recv(0)) == errno.ENOTSUP
        assert number_of(lambda: next(iter(pub))) == errno.ENOTSUP
        assert number_of(lambda: pub.subscribe(b"x")) == errno.ENOPROTOOPT
        assert number_of(lambda: pub.unsubscribe(b"x")) == errno.ENOPROTOOPT


@pytest.mark.parametrize("kind", [PUB, SUB])
@pytest.mark.parametrize("name", EVERYTHING)
def test_nothing_works_on_a_closed_socket(kind: int, name: str) -> None:
    sock = Socket(PUB if kind == PUB else SUB)
    sock.close()
    assert sock.closed
    assert number_of(lambda: EVERYTHING[name](sock)) == errno.EBADF


def test_closing_twice_is_no_error() -> None:
    sock = Socket(PUB)
    sock.close()
    sock.close()
    assert repr(sock) == "<Socket PUB, closed>"


def test_the_kinds_are_numbers_as_in_nanomsg() -> None:
    assert (PUB, SUB) == (32, 33)
    with pytest.raises(ValueError, match="16"):
        Socket(16)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_timeouts(seconds: float) -> None:
    with Socket(SUB) as sub:
        assert number_of(lambda: sub.recv(seconds)) == errno.ETIMEDOUT
        assert number_of(lambda: sub.wait_for_peers(1, seconds)) == errno.ETIMEDOUT
        sub.wait_for_peers(0, seconds)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_address_in_use(scheme: str, tmp_path: Path) -> None:
    with Socket(PUB) as first, Socket(SUB) as second:
        url = first.bind(place(scheme, tmp_path))
        assert number_of(lambda: second.bind(url)) == errno.EADDRINUSE


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tcp",
        "tcp://",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:99999",
        "ipc://relative",
        "http://127.0.0.1:1",
        "ws://x/",
    ],
)
def test_an_invalid_address(url: str) -> None:
    with Socket(PUB) as pub:
        for method in (pub.bind, pub.connect):
            with pytest.raises(UsageError) as caught:
                method(url)
            assert "inproc://NAME" in caught.value.hint


def test_options_behind_an_address_are_refused() -> None:
    with Socket(PUB) as pub, pytest.raises(UsageError, match="options"):
        pub.bind("tcp://127.0.0.1:0?policy=drop")


def test_a_host_that_is_not_here() -> None:
    with Socket(PUB) as pub:
        assert number_of(lambda: pub.bind("tcp://192.0.2.1:0")) == errno.EADDRNOTAVAIL


def test_all_hosts() -> None:
    with Socket(PUB) as pub:
        scheme, _, rest = pub.bind("tcp://*:0").partition("://")
        host, _, port = rest.rpartition(":")
        assert (scheme, host) == ("tcp", "0.0.0.0")
        socket.create_connection(("127.0.0.1", int(port))).close()


@pytest.mark.parametrize("options", [{"message_bytes": 0}, {"queue_bytes": 0}, {"linger_seconds": -1}])
def test_options_out_of_range(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Socket(PUB, **options)


def test_a_name_that_cannot_be_looked_up_is_dialled_in_vain() -> None:
    with Socket(SUB) as sub:
        sub.connect(f"tcp://{'x' * 70}.invalid:1")
        with pytest.raises(TimeoutError):
            sub.wait_for_peers(1, 0.05)
