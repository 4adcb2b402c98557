"""A stopping broker delivers acknowledged messages, also to peers that keep sending."""

from __future__ import annotations

import socket
from pathlib import Path

from kit.broker import Broker
from kit.hermod import OK, delivery, message, topics
from kit.wire import GUARD_SECONDS, Peer

ALL = ("hermod.pub", "hermod.sub")
PIECE = b"x" * 1000
MANY = 3000


def publish(broker: Broker, topic: str, count: int) -> None:
    """Every message is acknowledged."""
    with broker.connect("hermod.pub") as publisher:
        publisher.send(message(topic, PIECE) * count)
        publisher.expect(OK * count)


def subscribe(broker: Broker, handshake: bytes, receive_bytes: int = 0) -> Peer:
    peer = broker.connect("hermod.sub", receive_bytes)
    peer.send(handshake)
    peer.expect(OK)
    return peer


def test_a_subscriber_that_acknowledges_while_the_broker_stops() -> None:
    with Broker(listen=ALL) as broker, subscribe(broker, topics("s"), 4096) as slow:
        publish(broker, "s", MANY)
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        broker.begin_to_stop()
        for sequence in range(MANY):
            slow.expect(delivery("s", PIECE, sequence))
            slow.send(OK)
        assert b'"code": 503' in slow.expect_closed()


def test_a_window_is_worked_off_while_the_broker_stops() -> None:
    with Broker(listen=ALL) as broker, subscribe(broker, topics("s", window=1)) as subscriber:
        publish(broker, "s", 5)
        broker.begin_to_stop()
        for sequence in range(5):
            subscriber.expect(delivery("s", PIECE, sequence))
            subscriber.send(OK)
        assert b'"code": 503' in subscriber.expect_closed()


def test_bytes_held_by_a_window_are_logged_at_shutdown() -> None:
    with Broker("--set=limits.shutdown_seconds=0.2", listen=ALL) as broker:
        with subscribe(broker, topics("s", window=1)) as subscriber:
            publish(broker, "s", 2)
            subscriber.expect(delivery("s", PIECE, 0))
            broker.stop()
        assert f"{len(delivery('s', PIECE, 1)):,} bytes were not sent in time" in broker.log()


def test_a_successor_keeps_its_ipc_file(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    listen = f"--listen=simplest=ipc://{path}"
    with (
        Broker(listen, "--set=limits.shutdown_seconds=2", listen=ALL) as first,
        subscribe(first, topics("s", window=1)),  # without acknowledgements, the broker waits for the timeout
    ):
        publish(first, "s", 2)
        first.begin_to_stop()
        path_is_free(path)
        with Broker(listen, listen=()):
            assert first.process.wait(GUARD_SECONDS) == 0
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(path))


def path_is_free(path: Path) -> None:
    """Waits until no broker accepts connections there."""
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                return
