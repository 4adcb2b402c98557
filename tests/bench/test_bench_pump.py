"""The pump against a small broker on socket pairs, correct and faulty."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import pytest

from polycast.bench import pump as pump_module
from polycast.bench.expected_bytes import ExpectedBytes
from polycast.bench.pump import Pump, Traffic
from polycast.errors import RemoteError

CHUNK = b"x" * 1000
KEEPALIVE = b"PING\r\n"
EVEN = ExpectedBytes(len(CHUNK))

Broker = Callable[[socket.socket, list[socket.socket]], None]


def honest(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
    while data := publisher.recv(4096):
        for subscriber in subscribers:
            subscriber.sendall(data)


@dataclass
class Numbering:
    """Puts a number behind each chunk, as some protocols do with each message."""

    next: int

    def __call__(self, publisher: socket.socket, subscribers: list[socket.socket]) -> None:
        waiting = 0
        while data := publisher.recv(4096):
            waiting += len(data)
            while waiting >= len(CHUNK):
                waiting -= len(CHUNK)
                for subscriber in subscribers:
                    subscriber.sendall(CHUNK + b"%d" % self.next)
                self.next += 1


@dataclass(frozen=True)
class WithExtra:
    """Sends the last subscriber something on top, once."""

    extra: bytes

    def __call__(self, publisher: socket.socket, subscribers: list[socket.socket]) -> None:
        subscribers[-1].sendall(self.extra)
        honest(publisher, subscribers)


def forgetful(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
    """Loses seven bytes for the last subscriber."""
    data = publisher.recv(4096)
    for subscriber in subscribers[:-1]:
        subscriber.sendall(data)
    subscribers[-1].sendall(data[7:])
    honest(publisher, subscribers)


def fleeing(publisher: socket.socket, subscribers: list[socket.socket]) -> None:
    publisher.recv(1)
    subscribers[0].shutdown(socket.SHUT_RDWR)


@contextmanager
def pump_to(broker: Broker, per_subscriber: ExpectedBytes = EVEN) -> Iterator[Pump]:
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
        traffic = Traffic(CHUNK, per_subscriber.expected, len(KEEPALIVE))
        yield stack.enter_context(closing(Pump(near, [pair[0] for pair in rest], traffic)))


def test_every_byte_is_counted_over_several_runs() -> None:
    with pump_to(honest) as pump:
        for _ in range(2):
            flow = pump.run(seconds=0.02, window=4)
            assert flow.chunks > 0
            assert flow.elapsed > 0


def test_growing_numbers_are_counted_digit_by_digit() -> None:
    """From two digits to three and on, through a warm-up and a run."""
    with pump_to(Numbering(95), ExpectedBytes(len(CHUNK), ((95, 1),))) as pump:
        assert pump.run(seconds=0.02, window=4).chunks > 5
        assert pump.run(seconds=0.02, window=4).chunks > 0


def test_a_number_that_is_skipped_shows_where_digits_change() -> None:
    """One byte more for each digit that the numbers gained while the pump ran."""
    with (
        pump_to(Numbering(96), ExpectedBytes(len(CHUNK), ((95, 1),))) as pump,
        pytest.raises(RemoteError, match=r"wrong byte count: .*\(\+[1-4]\), 2 of 2 subscribers"),
    ):
        for _ in range(1000):  # until the number is reached, however slow the machine is
            pump.run(seconds=0.02, window=4)


def test_a_keepalive_is_not_an_error() -> None:
    with pump_to(WithExtra(KEEPALIVE)) as pump:
        assert pump.run(seconds=0.02, window=4).chunks > 0


def test_an_extra_byte_is_an_error() -> None:
    with (
        pump_to(WithExtra(b"!")) as pump,
        pytest.raises(RemoteError, match=r"wrong byte count: subscriber 1 .*\(\+1\), 1 of 2 subscribers"),
    ):
        pump.run(seconds=0.02, window=4)


def test_a_shortfall_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "STALL_LIMIT_SECONDS", 0.1)
    with (
        pump_to(forgetful) as pump,
        pytest.raises(RemoteError, match=r"nothing moved for 0.1 s: subscriber 1 .*\(-7\), 1 of 2 subscribers"),
    ):
        pump.run(seconds=0.02, window=4)


def test_a_closed_connection_is_named() -> None:
    with pump_to(fleeing) as pump, pytest.raises(RemoteError, match="closed the connection of subscriber 0"):
        pump.run(seconds=0.02, window=4)
