"""Start and end of sockets: threads, files, processes."""

from __future__ import annotations

import errno
import gc
import sys
import threading
from pathlib import Path

import pytest

from kit.nanomsg import PUB as PUB_HEADER
from kit.nanomsg import SUB as SUB_HEADER
from kit.program import Program
from kit.wire import GUARD_SECONDS, Peer, wait_for
from nanomsg.socket_pairs import SCHEMES, join, open_files, pair, place, port_of
from polycast.nanomsg import PUB, SUB, Socket


def test_closing_wakes_waiting_threads(tmp_path: Path) -> None:
    with pair(place("tcp", tmp_path), b"") as (_, sub):
        numbers: list[int | None] = []

        def wait() -> None:
            try:
                sub.recv()
            except OSError as error:
                numbers.append(error.errno)

        def wait_for_more() -> None:
            try:
                sub.wait_for_peers(2)
            except OSError as error:
                numbers.append(error.errno)

        waiting = [threading.Thread(target=work) for work in (wait, wait, wait_for_more)]
        for thread in waiting:
            thread.start()
        wait_for(lambda: all(map(is_waiting, waiting)), "all of them to wait")
        sub.close()
        for thread in waiting:
            thread.join(GUARD_SECONDS)
        assert numbers == [errno.EBADF] * 3


def is_waiting(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "wait"


def test_iteration_ends_with_the_socket(tmp_path: Path) -> None:
    with pair(place("tcp", tmp_path), b"") as (pub, sub):
        got: list[bytes] = []
        for message in sub_after(pub, sub):
            got.append(message)
            if message == b"2":
                sub.close()
        assert got == [b"1", b"2"]


def sub_after(pub: Socket, sub: Socket) -> Socket:
    pub.send(b"1")
    pub.send(b"2")
    return sub


@pytest.mark.parametrize("scheme", SCHEMES)
def test_closing_flushes_sent_messages(scheme: str, tmp_path: Path) -> None:
    with Socket(SUB) as sub:
        sub.subscribe(b"")
        with Socket(PUB) as pub:
            join(pub, sub, place(scheme, tmp_path))
            for number in range(3000):
                pub.send(b"%d" % number + b"x" * 500)
        for number in range(3000):
            assert sub.recv(GUARD_SECONDS).rstrip(b"x") == b"%d" % number


def test_a_peer_that_takes_nothing_does_not_hold_up_the_end() -> None:
    with Socket(PUB, linger_seconds=0.05) as pub, Peer(port_of(pub.bind("tcp://127.0.0.1:0")), 4096) as slow:
        slow.send(SUB_HEADER)
        pub.wait_for_peers(1, GUARD_SECONDS)
        while not pub.missed:
            pub.send(b"x" * 100_000)
        pub.close()
        assert pub.peers == 0
        assert slow.expect_closed().startswith(PUB_HEADER)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_left_of_many_sockets(scheme: str, tmp_path: Path) -> None:
    with Socket(PUB):
        threads, files = threading.active_count(), open_files()
    for _ in range(30):
        with Socket(PUB) as pub, Socket(SUB) as sub, Socket(SUB) as other:
            url = join(pub, sub, place(scheme, tmp_path))
            other.connect(url)
            other.connect("tcp://127.0.0.1:1")
            other.connect("inproc://nobody")
    assert threading.active_count() == threads
    wait_for(lambda: open_files() <= files, f"{files} open files again")


def test_hundreds_of_peers(tmp_path: Path) -> None:
    with Socket(PUB) as pub, Socket(SUB) as sub:
        sub.subscribe(b"")
        url = pub.bind(place("ipc", tmp_path))
        for _ in range(200):
            sub.connect(url)
        pub.wait_for_peers(200, GUARD_SECONDS)
        pub.send(b"x")
        for _ in range(200):
            assert sub.recv(GUARD_SECONDS) == b"x"


def test_an_unclosed_socket_warns_and_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with pytest.warns(ResourceWarning, match="unclosed <Socket PUB"):
        forget(f"ipc://{path}")
        gc.collect()
    wait_for(lambda: not path.exists(), "the socket to be closed")


def forget(url: str) -> None:
    Socket(PUB).bind(url)


# -- processes -------------------------------------------------------------------------------------------

PUBLISHER = """
import sys
from polycast.nanomsg import PUB, Socket
pub = Socket(PUB)
print(pub.bind(sys.argv[1]), flush=True)
pub.wait_for_peers(1)
for line in sys.stdin:
    pub.send(line.rstrip().encode())
"""

FORK = """
import errno, os, sys
from polycast.nanomsg import PUB, SUB, Socket
pub = Socket(PUB)
url = pub.bind("tcp://127.0.0.1:0")
if os.fork() == 0:
    try:
        pub.send(b"x")
    except OSError as error:
        assert error.errno == errno.EBADF
    pub.close()
    with Socket(SUB) as sub:
        sub.subscribe(b"")
        sub.connect(url)
        print(sub.recv(20).decode(), flush=True)
    sys.exit(0)
pub.wait_for_peers(1, 20)
pub.send(b"to the child")
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
pub.close()
"""


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "ws"])
def test_two_processes(scheme: str, tmp_path: Path) -> None:
    with (
        Socket(SUB) as sub,
        Program(sys.executable, "-W", "error", "-c", PUBLISHER, place(scheme, tmp_path)) as process,
    ):
        sub.subscribe(b"foo")
        sub.connect(process.read_line().decode())
        process.type(b"foo|1\nbar|2\nfoo|3\n")
        assert sub.recv(GUARD_SECONDS) == b"foo|1"
        assert sub.recv(GUARD_SECONDS) == b"foo|3"


def test_a_process_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    """Sent messages are flushed, the socket file is removed, and no thread prints an error."""
    path = tmp_path / "sock"
    with Socket(SUB) as sub, Program(sys.executable, "-c", PUBLISHER, f"ipc://{path}") as process:
        sub.subscribe(b"")
        sub.connect(process.read_line().decode())
        process.type(b"line %d\n" * 500 % tuple(range(500)))
        process.end_input()
        assert [sub.recv(GUARD_SECONDS) for _ in range(500)] == [b"line %d" % number for number in range(500)]
        finished = process.finish()
        assert (finished.code, finished.err) == (0, "")
        assert not path.exists()


def test_a_child_made_by_fork_can_have_its_own() -> None:
    with Program(sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK) as process:
        finished = process.finish()
        assert (finished.code, finished.err) == (0, "")
        assert finished.out == b"to the child\n0\n"
