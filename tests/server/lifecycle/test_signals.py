"""Shutdown on signals."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit.broker import Broker
from kit.flow import MIB, Reading, Sending
from kit.frames import pub
from kit.room import Room
from kit.wire import GUARD_SECONDS, Peer, wait_for

BOTH = [signal.SIGTERM, signal.SIGINT]
STREAM = pub("flow", b"x" * MIB) * 12
"""More bytes than the sockets of a subscriber that does not read can buffer."""


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def with_waiting_subscriber(*arguments: str) -> Iterator[tuple[Broker, Peer]]:
    """A broker with queued messages for a subscriber that does not read."""
    with Broker(*arguments, fresh=True) as broker, Room(broker) as room:
        subscriber = room.simplest(b"sub flow\n", receive_bytes=4096)
        sending = Sending(publisher := room.connect("simplest"), STREAM)
        sending.finish()
        room.send_commands(publisher, b"")
        yield broker, subscriber


def stop_accepting(broker: Broker, number: signal.Signals) -> None:
    broker.process.send_signal(number)
    wait_for(lambda: not accepts(broker.ports["simplest"]), "the broker to accept no more")


def is_ended_by(broker: Broker, number: signal.Signals) -> bool:
    broker.process.send_signal(number)
    return broker.process.poll() == 1


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_ends_it_with_0(number: signal.Signals) -> None:
    with Broker(fresh=True) as broker, broker.connect("simplest") as peer:
        broker.process.send_signal(number)
        assert peer.expect_closed() == b""
        assert broker.process.wait(GUARD_SECONDS) == 0


@pytest.mark.parametrize("number", BOTH)
def test_queued_messages_are_sent_first(number: signal.Signals) -> None:
    with with_waiting_subscriber("--set=limits.shutdown_seconds=600") as (broker, subscriber):
        stop_accepting(broker, number)
        assert broker.process.poll() is None
        assert Reading(subscriber, len(STREAM)).finish() == STREAM
        assert subscriber.expect_closed() == b""
        assert broker.process.wait(GUARD_SECONDS) == 0


@pytest.mark.parametrize("number", BOTH)
def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    with with_waiting_subscriber("--set=limits.shutdown_seconds=600") as (broker, _):
        stop_accepting(broker, signal.SIGTERM)
        assert broker.process.poll() is None
        broker.exit_code = 1
        wait_for(lambda: is_ended_by(broker, number), "the end; signals that come together count as one")


def test_a_subscriber_that_does_not_read_in_time_is_named() -> None:
    with with_waiting_subscriber("--set=limits.shutdown_seconds=0.1") as (broker, subscriber):
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(GUARD_SECONDS) == 0
        assert f":{subscriber.socket.getsockname()[1]}:" in broker.wait_for_log("were not sent in time")


def test_earlier_messages_are_delivered_before_the_close() -> None:
    with Broker() as broker, Room(broker) as room:
        subscribers = [room.simplest(b"sub \n") for _ in range(5)]
        room.simplest(pub("last", b"words"))
        broker.process.send_signal(signal.SIGTERM)
        for subscriber in subscribers:
            assert subscriber.expect_closed() == pub("last", b"words")


def test_the_last_line_contains_the_counters() -> None:
    with Broker() as broker:
        with Room(broker) as room:
            subscriber = room.simplest(b"sub n\nnonsense\nmore nonsense\n")
            room.simplest(pub("n", b"1") + b"pub \xff 1 x\n")
            subscriber.expect(pub("n", b"1"))
            client = room.client(b"subscribe n\n")
            room.simplest(pub("n", b"a\nb"))
            client.expect(b"n!a\\nb\n")
        broker.stop()
        summary = broker.wait_for_log("INFO simplest:")
        assert "refused 2 (unknown command)" in summary
        assert "refused 1 (topic not UTF-8)" in summary
        assert "lossy 1" in broker.wait_for_log("INFO fanout.client:")


def test_ports_are_free_after_the_stop() -> None:
    with Broker() as broker, broker.connect("simplest") as peer:
        port = broker.ports["simplest"]
        broker.stop()
        peer.expect_closed()
        with Broker(f"--listen=simplest=tcp://127.0.0.1:{port}", listen=()) as again:
            assert again.ports["simplest"] == port
