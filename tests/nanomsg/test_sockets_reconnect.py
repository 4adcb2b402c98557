"""Sockets dial before the listener exists, and again after it ends; socket files are removed."""

from __future__ import annotations

import errno
import socket
import stat
from pathlib import Path

import pytest

from kit.links import free_port
from kit.proxy import Proxy
from kit.wire import GUARD_SECONDS, wait_for
from nanomsg.socket_pairs import SCHEMES, place, port_of
from polycast.nanomsg import PUB, SUB, Socket


def fixed_place(scheme: str, folder: Path) -> str:
    """An address that can be bound again."""
    return place(scheme, folder).replace(":0", f":{free_port()}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_connecting_before_anybody_listens(scheme: str, tmp_path: Path) -> None:
    url = fixed_place(scheme, tmp_path)
    with Socket(SUB) as sub, Socket(PUB) as pub:
        sub.subscribe(b"")
        sub.connect(url)
        pub.bind(url)
        pub.wait_for_peers(1, GUARD_SECONDS)
        pub.send(b"here I am")
        assert sub.recv(GUARD_SECONDS) == b"here I am"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_listener_comes_back(scheme: str, tmp_path: Path) -> None:
    url = fixed_place(scheme, tmp_path)
    with Socket(SUB) as sub:
        sub.subscribe(b"")
        sub.connect(url)
        for number in range(3):
            with Socket(PUB) as pub:
                pub.bind(url)
                pub.wait_for_peers(1, GUARD_SECONDS)
                pub.send(b"%d" % number)
            assert sub.recv(GUARD_SECONDS) == b"%d" % number
            wait_for(lambda: sub.peers == 0, "the pipe to be gone")


def test_a_connection_that_was_cut_is_made_again() -> None:
    with Socket(PUB) as pub, Socket(SUB) as sub, Proxy(port_of(pub.bind("tcp://127.0.0.1:0"))) as proxy:
        sub.subscribe(b"")
        sub.connect(f"tcp://127.0.0.1:{proxy.port}")
        pub.wait_for_peers(1, GUARD_SECONDS)
        proxy.cut()
        wait_for(lambda: pub.peers == 0 and sub.peers == 0, "both ends to notice")
        proxy.restore()
        pub.wait_for_peers(1, GUARD_SECONDS)
        pub.send(b"back again")
        assert sub.recv(GUARD_SECONDS) == b"back again"


def test_a_closed_socket_does_not_dial() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Socket(SUB) as sub:
            sub.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
            listener.accept()[0].close()
        listener.settimeout(0.3)
        with pytest.raises(TimeoutError):
            while True:
                listener.accept()[0].close()


# -- socket files ----------------------------------------------------------------------------------------


def test_the_file_goes_with_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with Socket(PUB) as pub:
        pub.bind(f"ipc://{path}")
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert not path.exists()


def test_a_file_that_was_left_behind_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.exists()
    with Socket(PUB) as pub, Socket(SUB) as sub:
        pub.bind(f"ipc://{path}")
        sub.connect(f"ipc://{path}")
        pub.wait_for_peers(1, GUARD_SECONDS)


def test_a_file_with_a_listener_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as other, Socket(PUB) as pub:
        other.bind(str(path))
        other.listen()
        with pytest.raises(OSError) as caught:
            pub.bind(f"ipc://{path}")
        assert caught.value.errno == errno.EADDRINUSE
        assert path.exists()


def test_a_file_that_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("important")
    with Socket(PUB) as pub, pytest.raises(OSError):
        pub.bind(f"ipc://{path}")
    assert path.read_text() == "important"


def test_the_file_of_another_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with Socket(PUB) as first:
        first.bind(f"ipc://{path}")
        path.rename(tmp_path / "moved")
        with Socket(PUB) as second:
            second.bind(f"ipc://{path}")
            first.close()
            assert path.exists()
