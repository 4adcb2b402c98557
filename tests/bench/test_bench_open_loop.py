"""The open loop against a small broker on socket pairs, correct and faulty."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from polycast.bench import open_loop as open_loop_module
from polycast.bench.cells import Cell
from polycast.bench.expected_bytes import ExpectedBytes
from polycast.bench.open_loop import OpenLoop, OpenTraffic, message_counts
from polycast.errors import RemoteError

MESSAGE = b"x" * 50
KEEPALIVE = b"PING\r\n"
TRAFFIC = OpenTraffic(MESSAGE, ExpectedBytes(len(MESSAGE)).expected, len(KEEPALIVE))
RATE = 5000

Broker = Callable[[socket.socket, list[socket.socket]], None]


def honest(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
    while data := publisher.recv(4096):
        for subscriber in subscribers:
            subscriber.sendall(data)


def acknowledging(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
    """An acknowledgement of two bytes for each message."""
    received = 0
    while data := publisher.recv(4096):
        before, received = received, received + len(data)
        publisher.sendall(b"OK" * (received // len(MESSAGE) - before // len(MESSAGE)))


def with_extra(extra: bytes) -> Broker:
    def broker(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
        subscribers[-1].sendall(extra)
        honest(publisher, subscribers)

    return broker


def forgetful(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
    publisher.recv(len(MESSAGE))
    honest(publisher, subscribers)


def fleeing(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
    publisher.recv(1)
    subscribers[0].shutdown(socket.SHUT_RDWR)


@contextmanager
def sockets_to(broker: Broker) -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """The publisher and two subscribers."""
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3)]
        for pair in pairs:
            stack.enter_context(pair[0])
            stack.enter_context(pair[1])
        (near, far), *rest = pairs
        thread = threading.Thread(target=broker, args=(far, [pair[1] for pair in rest]))
        thread.start()
        stack.callback(thread.join)
        stack.callback(near.shutdown, socket.SHUT_RDWR)
        yield near, [pair[0] for pair in rest]


def test_every_message_has_a_delay() -> None:
    with sockets_to(honest) as (publisher, subscribers):
        flow = OpenLoop(publisher, subscribers, TRAFFIC).run(RATE, messages=200, first=50)
    assert 0 < flow.delays.p50 <= flow.delays.p99 <= flow.delays.p999
    assert 0 <= flow.sent_late.p50 < flow.delays.p999
    assert flow.elapsed >= 199 / RATE


def test_acknowledgements_are_received_by_the_publisher() -> None:
    traffic = OpenTraffic(MESSAGE, lambda messages: 2 * messages)
    with sockets_to(acknowledging) as (publisher, _):
        assert OpenLoop(publisher, [publisher], traffic).run(RATE, messages=100).delays.p50 > 0


def test_a_keepalive_is_not_an_error() -> None:
    with sockets_to(with_extra(KEEPALIVE)) as (publisher, subscribers):
        assert OpenLoop(publisher, subscribers, TRAFFIC).run(RATE, messages=20).delays.p50 > 0


def test_an_extra_byte_is_an_error() -> None:
    with (
        sockets_to(with_extra(b"!")) as (publisher, subscribers),
        pytest.raises(RemoteError, match="wrong byte count: receiver 1 got 1001 of 1000 bytes"),
    ):
        OpenLoop(publisher, subscribers, TRAFFIC).run(RATE, messages=20)


def test_a_lost_message_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_loop_module, "DRAIN_LIMIT_SECONDS", 0.1)
    with (
        sockets_to(forgetful) as (publisher, subscribers),
        pytest.raises(RemoteError, match=r"not drained after 0\.1 s: receiver 0 got 950 of 1000 bytes"),
    ):
        OpenLoop(publisher, subscribers, TRAFFIC).run(RATE, messages=20)


def test_a_closed_connection_is_named() -> None:
    with (
        sockets_to(fleeing) as (publisher, subscribers),
        pytest.raises(RemoteError, match="closed the connection of subscriber 0"),
    ):
        OpenLoop(publisher, subscribers, TRAFFIC).run(RATE, messages=20)


def test_the_warm_up_comes_on_top() -> None:
    cell = Cell("x", "x", kind="open-loop", rate=1000)
    assert message_counts(cell, 2.0) == (500, 2500)
    assert message_counts(cell, 0.0001) == (0, 1)
