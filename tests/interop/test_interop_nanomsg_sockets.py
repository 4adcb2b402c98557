"""Sockets of `polycast.nanomsg` against nanomsg (nanocat), nng (nngcat) and pynng, with no broker between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.links import free_port
from kit.nng import NngSocket
from kit.program import Program, need
from kit.wire import GUARD_SECONDS, wait_for
from polycast.nanomsg import PUB, SUB, Socket

pytestmark = pytest.mark.interop

PACKAGES = {"nanocat": "nanomsg-utils", "nngcat": "nng-utils"}
SCHEMES = ("tcp", "ipc", "ws")
LARGE = b"foo|" + b"x" * 1_000_000
MESSAGES = [b"foo|Hello!", b"bar|World!", b"baz|nobody", b"", bytes(range(256)), b"foo" * 40_000, b"end"]
WANTED = [b"foo|Hello!", b"bar|World!", b"foo" * 40_000, b"end"]


@pytest.fixture(params=SCHEMES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "ipc":
        return f"ipc://{tmp_path}/sock"
    return f"{request.param}://127.0.0.1:{free_port()}"  # no path: nanomsg binds to none


@pytest.fixture(params=["we bind", "they bind"])
def we_bind(request: pytest.FixtureRequest) -> bool:
    return str(request.param) == "we bind"


@pytest.fixture(params=PACKAGES)
def program(request: pytest.FixtureRequest) -> str:
    return need(request.param, PACKAGES[request.param])


def publishing(program: str, how: str, url: str) -> Program:
    """It says the same again and again; nngcat counts in whole seconds."""
    interval = "1" if program.endswith("nngcat") else "0.1"
    return Program(program, "--pub", how, url, "--data", "foo|Hello!", "--interval", interval)


@contextmanager
def ours(kind: int, url: str, bind: bool) -> Iterator[Socket]:
    with Socket(PUB if kind == PUB else SUB) as sock:
        if kind == SUB:
            for topic in (b"foo", b"bar", b"end"):
                sock.subscribe(topic)
        if bind:
            sock.bind(url)
        else:
            sock.connect(url)
        yield sock


@contextmanager
def theirs(sock: NngSocket, url: str, listen: bool) -> Iterator[NngSocket]:
    with sock:
        if listen:
            sock.listen(url)
        else:
            sock.dial(url, block=False)
        yield sock


# -- nanocat and nngcat ----------------------------------------------------------------------------------


def test_a_program_subscribes(program: str, url: str, we_bind: bool) -> None:
    how = "--connect" if we_bind else "--bind"
    command = (program, "--sub", how, url, "--subscribe", "foo", "--quoted")
    with ours(PUB, url, we_bind) as pub, Program(*command) as terminal:
        pub.wait_for_peers(1, GUARD_SECONDS)
        pub.send(b"baz|World!")
        pub.send(b"foo|Hello!")
        pub.send(b"foo|")
        pub.send(b"foo|" + bytes(range(65, 91)) * 20)
        assert terminal.read_line() == b'"foo|Hello!"'
        assert terminal.read_line() == b'"foo|"'
        assert terminal.read_line() == b'"foo|' + bytes(range(65, 91)) * 20 + b'"'


def test_a_program_publishes(program: str, url: str, we_bind: bool) -> None:
    how = "--connect" if we_bind else "--bind"
    with ours(SUB, url, we_bind) as sub, publishing(program, how, url) as terminal:
        assert sub.recv(GUARD_SECONDS) == b"foo|Hello!"
        assert terminal.process.poll() is None


def test_a_publisher_outlives_its_subscribers(program: str, url: str) -> None:
    """Whatever we say when we leave must not end it: nanomsg's PUB aborts on a message."""
    with publishing(program, "--bind", url) as terminal:
        for _ in range(2):
            with ours(SUB, url, bind=False) as sub:
                assert sub.recv(GUARD_SECONDS) == b"foo|Hello!"
        assert terminal.process.poll() is None


# -- pynng -----------------------------------------------------------------------------------------------


def test_pynng_subscribes(url: str, we_bind: bool) -> None:
    with (
        ours(PUB, url, we_bind) as pub,
        theirs(NngSocket("Sub0", recv_buffer_size=100), url, not we_bind) as sub,
    ):
        for topic in (b"foo", b"bar", b"end"):
            sub.subscribe(topic)
        pub.wait_for_peers(1, GUARD_SECONDS)
        for message in MESSAGES:
            assert pub.send(message) == len(message)
        assert [sub.recv() for _ in WANTED] == WANTED


def test_pynng_publishes(url: str, we_bind: bool) -> None:
    with (
        ours(SUB, url, we_bind) as sub,
        theirs(NngSocket("Pub0", send_buffer_size=100), url, not we_bind) as pub,
    ):
        wait_for(pub.pipes, "the pipe")
        for message in MESSAGES:
            pub.send(message)
        assert [sub.recv(GUARD_SECONDS) for _ in WANTED] == WANTED


def test_pynng_and_large_messages(url: str) -> None:
    with (
        ours(PUB, url, bind=True) as pub,
        theirs(NngSocket("Sub0"), url, listen=False) as sub,
    ):
        sub.subscribe(b"")
        pub.wait_for_peers(1, GUARD_SECONDS)
        pub.send(LARGE)
        assert sub.recv() == LARGE


def test_pynng_goes_and_comes_back(url: str) -> None:
    with ours(SUB, url, bind=False) as sub:
        for number in range(2):
            with theirs(NngSocket("Pub0"), url, listen=True) as pub:
                wait_for(pub.pipes, "the pipe")
                pub.send(b"foo %d" % number)
                assert sub.recv(GUARD_SECONDS) == b"foo %d" % number
            wait_for(lambda: sub.peers == 0, "the pipe to be gone")


def test_a_pynng_of_another_kind_is_refused(url: str) -> None:
    with ours(PUB, url, bind=True) as pub, ours(SUB, url, bind=False) as sub:
        pub.wait_for_peers(1, GUARD_SECONDS)
        with theirs(NngSocket("Pull0"), url, listen=False):
            pub.send(b"foo")
            assert sub.recv(GUARD_SECONDS) == b"foo"
            assert pub.peers == 1
