"""Acknowledged publishers against a small broker on socket pairs, correct and faulty."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from polycast.bench import acked_publishers as lanes_module
from polycast.bench.ack_counters import EqualAckCounter
from polycast.bench.acked_publishers import AckedPublisher, AckedPump
from polycast.errors import RemoteError

MESSAGE = b"x" * 100
PER_BLOCK = 10
OK = b"fine\n"

Broker = Callable[[socket.socket], None]


def acknowledge(publisher: socket.socket) -> None:
    """An answer for each message."""
    waiting = 0
    while data := publisher.recv(4096):
        count, waiting = divmod(waiting + len(data), len(MESSAGE))
        publisher.sendall(OK * count)


def refuse(publisher: socket.socket) -> None:
    """The fourth message is refused."""
    publisher.recv(4096, socket.MSG_WAITALL)
    publisher.sendall(OK * 3 + b"no!!\n" + OK)
    while publisher.recv(4096):
        pass


def forget(publisher: socket.socket) -> None:
    """The first message is taken without a word."""
    publisher.recv(len(MESSAGE), socket.MSG_WAITALL)
    acknowledge(publisher)


def exaggerate(publisher: socket.socket) -> None:
    publisher.sendall(OK)
    acknowledge(publisher)


def flee(publisher: socket.socket) -> None:
    publisher.recv(1)
    publisher.shutdown(socket.SHUT_RDWR)


def serve(broker: Broker, publisher: socket.socket) -> None:
    with suppress(OSError):  # a failed run leaves while it is being answered
        broker(publisher)


@contextmanager
def lanes_to(*brokers: Broker) -> Iterator[list[AckedPublisher]]:
    with ExitStack() as stack:
        publishers = []
        for number, broker in enumerate(brokers):
            near, far = socket.socketpair()
            stack.enter_context(near)
            stack.enter_context(far)
            thread = threading.Thread(target=serve, args=(broker, far))
            thread.start()
            stack.callback(thread.join)
            stack.callback(near.shutdown, socket.SHUT_RDWR)
            publishers.append(
                AckedPublisher(f"publisher {number}", near, MESSAGE * PER_BLOCK, PER_BLOCK, EqualAckCounter(OK))
            )
        yield publishers


def test_every_acknowledgement_is_counted_over_several_runs() -> None:
    with lanes_to(acknowledge, acknowledge) as publishers, closing(AckedPump(publishers)) as pump:
        for _ in range(2):
            before = sum(publisher.sent for publisher in publishers)
            flow = pump.run(seconds=0.02, window=4)
            assert flow.chunks == sum(publisher.sent for publisher in publishers) - before > 0
        assert all(publisher.acks == publisher.sent * PER_BLOCK for publisher in publishers)


def test_more_than_a_socket_takes_at_once() -> None:
    with lanes_to(acknowledge) as publishers, closing(AckedPump(publishers)) as pump:
        assert pump.run(seconds=0.02, window=10_000).chunks >= 10_000


def test_the_first_window_is_sent_even_without_time() -> None:
    with lanes_to(acknowledge, acknowledge) as publishers, closing(AckedPump(publishers)) as pump:
        assert [pump.run(seconds=0, window=3).chunks for _ in range(2)] == [6, 6]


def test_each_publisher_sends_the_given_number_of_blocks() -> None:
    with lanes_to(acknowledge, acknowledge) as publishers, closing(AckedPump(publishers)) as pump:
        assert pump.fill(blocks=25, window=4).chunks == 50
        assert [publisher.acks for publisher in publishers] == [250, 250]


def test_no_publisher_is_further_ahead_than_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "STALL_LIMIT_SECONDS", 0.1)
    with (
        lanes_to(acknowledge, forget) as publishers,
        closing(AckedPump(publishers)) as pump,
        pytest.raises(RemoteError, match=r"nothing moved for 0.1 s: publisher 1 got 19 of 20 acknowledgements"),
    ):
        pump.fill(blocks=2, window=2)


def test_a_refusal_is_no_acknowledgement() -> None:
    with (
        lanes_to(acknowledge, refuse) as publishers,
        closing(AckedPump(publishers)) as pump,
        pytest.raises(RemoteError, match=r"publisher 1: expected .*, received .*no!!"),
    ):
        pump.fill(blocks=5, window=5)


def test_an_extra_acknowledgement_is_an_error() -> None:
    with (
        lanes_to(acknowledge, exaggerate) as publishers,
        closing(AckedPump(publishers)) as pump,
        pytest.raises(RemoteError, match=r"too many acknowledgements: publisher 1 got 51 of 50 acknowledgements"),
    ):
        pump.fill(blocks=5, window=5)


def test_a_closed_connection_is_named() -> None:
    with (
        lanes_to(flee) as publishers,
        closing(AckedPump(publishers)) as pump,
        pytest.raises(RemoteError, match="publisher 0: "),
    ):
        pump.fill(blocks=5, window=5)
