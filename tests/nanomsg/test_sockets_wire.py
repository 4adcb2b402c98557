"""The bytes on tcp and ipc, and invalid peers."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.nanomsg import PUB as PUB_HEADER
from kit.nanomsg import SUB as SUB_HEADER
from kit.nanomsg import FilePeer, Listening, message, typed
from kit.wire import GUARD_SECONDS, Peer, wait_for
from nanomsg.socket_pairs import open_files, port_of, take
from polycast.nanomsg import PUB, SUB, Socket, pipe


@contextmanager
def bound(kind: int, **options: int) -> Iterator[tuple[Socket, int]]:
    with Socket(PUB if kind == PUB else SUB, **options) as sock:
        if kind == SUB:
            sock.subscribe(b"")
        yield sock, port_of(sock.bind("tcp://127.0.0.1:0"))


def test_a_publisher() -> None:
    with bound(PUB) as (pub, port), Peer(port) as peer:
        peer.expect(PUB_HEADER)
        peer.send(SUB_HEADER)
        pub.wait_for_peers(1, GUARD_SECONDS)
        pub.send(b"foo|Hello!")
        pub.send(b"")
        peer.expect(bytes.fromhex("000000000000000a 666f6f7c48656c6c6f21") + bytes(8))


def test_a_subscriber() -> None:
    with bound(SUB) as (sub, port), Peer(port) as peer:
        peer.expect(SUB_HEADER)
        peer.send(PUB_HEADER + message(b"foo|Hello!") + message(b"") + message(b"x"))
        assert take(sub, 3) == [b"foo|Hello!", b"", b"x"]


def test_whole_equals_byte_by_byte() -> None:
    stream = PUB_HEADER + message(b"foo|Hello!") + message(b"") + message(b"y" * 300)
    with bound(SUB) as (sub, port), Peer(port) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in stream:
            peer.send(bytes([byte]))
        assert take(sub, 3) == [b"foo|Hello!", b"", b"y" * 300]


@pytest.mark.parametrize("kind", [PUB, SUB])
def test_a_dialling_socket_sends_the_same(kind: int) -> None:
    own, other = (PUB_HEADER, SUB_HEADER) if kind == PUB else (SUB_HEADER, PUB_HEADER)
    with Listening() as listener, Socket(PUB if kind == PUB else SUB) as sock:
        sock.connect(listener.address)
        with listener.accept() as peer:
            peer.expect(own)
            peer.send(other)
            sock.wait_for_peers(1, GUARD_SECONDS)


def test_ipc_has_a_byte_before_each_size(tmp_path: Path) -> None:
    with Socket(PUB) as pub, Socket(SUB) as sub:
        pub.bind(f"ipc://{tmp_path}/pub")
        sub.subscribe(b"")
        sub.bind(f"ipc://{tmp_path}/sub")
        with FilePeer(f"{tmp_path}/pub") as listener, FilePeer(f"{tmp_path}/sub") as publisher:
            listener.send(SUB_HEADER)
            pub.wait_for_peers(1, GUARD_SECONDS)
            pub.send(b"x|y")
            listener.expect(PUB_HEADER + typed(b"x|y"))
            publisher.send(PUB_HEADER + typed(b"z") + typed(b""))
            assert take(sub, 2) == [b"z", b""]


# -- bad peers -------------------------------------------------------------------------------------------

BAD_TO_A_SUB = {
    "magic": b"GET / HTTP/1.1\r\n\r\n",
    "version": bytes.fromhex("0053500100200000"),
    "another kind": SUB_HEADER,
    "unknown kind": bytes.fromhex("0053500000100000"),
    "reserved": bytes.fromhex("0053500000200001"),
    "too large": PUB_HEADER + (1001).to_bytes(8, "big"),
    "far too large": PUB_HEADER + b"\xff" * 8,
}


@pytest.mark.parametrize("name", BAD_TO_A_SUB)
def test_a_bad_publisher_loses_its_pipe_alone(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with bound(SUB, message_bytes=1000) as (sub, port), Peer(port) as good, Peer(port) as bad:
        good.send(PUB_HEADER + message(b"before"))
        assert sub.recv(GUARD_SECONDS) == b"before"
        bad.send(BAD_TO_A_SUB[name])
        assert bad.expect_closed() == SUB_HEADER
        good.send(message(b"z" * 1000))
        assert sub.recv(GUARD_SECONDS) == b"z" * 1000
        wait_for(lambda: sub.peers == 1, "the bad peer to be gone")
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "closed: " in record.getMessage()


def test_a_message_that_is_too_large_names_the_argument(caplog: pytest.LogCaptureFixture) -> None:
    with bound(SUB, message_bytes=1000) as (_, port), Peer(port) as bad:
        bad.send(BAD_TO_A_SUB["too large"])
        bad.expect_closed()
    assert "a message of 1,001 exceeds the limit of 1,000; raise the socket's message_bytes" in caplog.text


def test_messages_before_an_error_are_received() -> None:
    with bound(SUB, message_bytes=1000) as (sub, port), Peer(port) as bad:
        bad.send(PUB_HEADER + message(b"one") + message(b"two") + message(b"x" * 1001))
        bad.expect_closed()
        assert take(sub, 2) == [b"one", b"two"]


def test_an_ipc_message_of_another_type(tmp_path: Path) -> None:
    with Socket(SUB) as sub:
        sub.bind(f"ipc://{tmp_path}/sub")
        with FilePeer(f"{tmp_path}/sub") as bad:
            bad.send(PUB_HEADER + b"\x02" + message(b"x"))
            assert bad.expect_closed() == SUB_HEADER


def test_a_subscriber_that_speaks_loses_its_pipe() -> None:
    with bound(PUB) as (pub, port), Peer(port) as good, Peer(port) as bad:
        good.send(SUB_HEADER)
        bad.send(SUB_HEADER)
        pub.wait_for_peers(2, GUARD_SECONDS)
        bad.send(message(b"I have something to say"))
        assert bad.expect_closed() == PUB_HEADER
        wait_for(lambda: pub.peers == 1, "the bad peer to be gone")
        pub.send(b"x")
        good.expect(PUB_HEADER + message(b"x"))


def test_a_bad_peer_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "FLUSH_SECONDS", 0.05)
    with bound(PUB) as (pub, port), Peer(port, receive_bytes=4096) as bad:
        bad.send(SUB_HEADER)
        pub.wait_for_peers(1, GUARD_SECONDS)
        files = open_files()
        while not pub.missed:
            pub.send(b"x" * 100_000)
        bad.send(message(b"I have something to say"))
        wait_for(lambda: pub.peers == 0, "the bad peer to be no peer")
        wait_for(lambda: open_files() == files - 1, "its connection to be gone")


def test_a_peer_without_a_header_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "HEADER_SECONDS", 0.05)
    with bound(PUB) as (pub, port), Peer(port) as silent, Peer(port) as slow:
        slow.send(SUB_HEADER[:7])
        assert silent.expect_closed() == PUB_HEADER
        assert slow.expect_closed() == PUB_HEADER
        assert pub.peers == 0


def test_a_peer_may_be_idle_after_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "HEADER_SECONDS", 0.05)
    with bound(PUB) as (pub, port), Peer(port) as subscriber, Peer(port) as silent:
        subscriber.send(SUB_HEADER)
        silent.expect_closed()
        pub.send(b"x")
        subscriber.expect(PUB_HEADER + message(b"x"))


def test_two_of_a_kind_do_not_talk(caplog: pytest.LogCaptureFixture) -> None:
    with Socket(SUB) as one, Socket(SUB) as other:
        other.connect(one.bind("tcp://127.0.0.1:0"))
        wait_for(lambda: "SUB" in caplog.text, "the refusal")
        assert (one.peers, other.peers) == (0, 0)


def test_a_large_limit() -> None:
    large = b"x" * (3 * 1024 * 1024)
    with bound(SUB, message_bytes=len(large)) as (sub, port), Peer(port) as peer:
        peer.send(PUB_HEADER + message(large) + message(b"behind"))
        assert take(sub, 2) == [large, b"behind"]


def test_the_limit_by_default_is_a_mebibyte() -> None:
    with bound(SUB) as (sub, port), Peer(port) as good, Peer(port) as bad:
        good.send(PUB_HEADER + message(b"x" * 1024 * 1024))
        assert len(sub.recv(GUARD_SECONDS)) == 1024 * 1024
        bad.send(PUB_HEADER + (1024 * 1024 + 1).to_bytes(8, "big"))
        assert bad.expect_closed() == SUB_HEADER
