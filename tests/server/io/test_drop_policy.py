"""Policy `drop` drops messages, never replies."""

from __future__ import annotations

import socket

from kit.broker import Broker
from kit.frames import pub
from kit.room import Room
from kit.slow import PIECE_BYTES, QUEUE_BYTES, publish_until
from kit.wire import wait_for
from polycast.server.io.sockets import unacknowledged


def test_a_reply_is_not_dropped_with_the_messages() -> None:
    with Broker(f"--set=limits.queue_bytes={QUEUE_BYTES}", options="?policy=drop") as broker, Room(broker) as room:
        slow = room.client(b"subscribe flow\n", receive_bytes=4096)
        witness, publisher = room.simplest(b"sub flow\n"), room.simplest()
        first_dropped = publish_until(lambda: "dropping" in broker.log(), room, publisher, witness) - 1
        slow.send(b"time\n" * 3)
        room.send_commands(publisher, pub("flow", b"x" * PIECE_BYTES))
        for number in range(first_dropped):
            slow.expect(b"flow!" + b"%08d" % number * (PIECE_BYTES // 8) + b"\n")
        for _ in range(3):
            assert slow.read_until(b"\n").strip().isdigit()


def test_unacknowledged_bytes_of_the_kernel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with socket.create_connection(server.getsockname()) as sender:
            reader, _ = server.accept()
            with reader:
                sender.setblocking(False)
                size = sender.send(b"x" * 1_000_000)
                assert 0 < unacknowledged(sender) <= size
                reader.settimeout(20)
                while size:
                    size -= len(reader.recv(65536))
                wait_for(lambda: unacknowledged(sender) == 0, "all of it to be taken")
    assert unacknowledged(sender) == 0
