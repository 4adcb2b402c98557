"""The preflight against a small broker with sequences, correct and faulty."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha1

import pytest

from polycast.bench.cells import Cell
from polycast.bench.expected_bytes import ExpectedBytes
from polycast.bench.preflight import verify
from polycast.bench.target_connections import Participants, SubscriberConnection, TargetConnection
from polycast.bench.wires import WIRES
from polycast.errors import RemoteError

CELL = Cell("small", "2 topics x 2 subscribers", topics=2, subscribers=2, payload_bytes=16)
PUBLICATION = re.compile(rb'{"topic": "(\w+)", "payload_size": (\d+), "checksum": "\w+"}')
HEADER_BYTES = len('{"topic": "topic0000", "sequence": , "payload_size": 16, "checksum": ""}') + 40

Numbers = dict[bytes, int]
Step = Callable[[bytes, bytes], int]


def by_one(topic: bytes, payload: bytes) -> int:
    return 1


def deliver(publisher: socket.socket, subscribers: list[socket.socket], numbers: Numbers, step: Step) -> None:
    """Number each publication and send it to everyone."""
    waiting = b""
    while data := publisher.recv(65536):
        waiting += data
        while (found := PUBLICATION.match(waiting)) and len(waiting) >= found.end() + int(found[2]):
            topic, end = found[1], found.end() + int(found[2])
            payload, waiting = waiting[found.end() : end], waiting[end:]
            head = b'{"topic": "%b", "sequence": %d, "payload_size": %d, "checksum": "%b"}'
            digest = sha1(payload).hexdigest().encode()
            for subscriber in subscribers:
                subscriber.sendall(head % (topic, numbers[topic], len(payload), digest) + payload)
            numbers[topic] += step(topic, payload)


@contextmanager
def party_at(numbers: Numbers, step: Step = by_one) -> Iterator[Participants]:
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3)]
        for pair in pairs:
            stack.enter_context(pair[0])
            stack.enter_context(pair[1])
        (near, far), *rest = pairs
        arguments = (far, [pair[1] for pair in rest], numbers, step)
        thread = threading.Thread(target=deliver, args=arguments)
        thread.start()
        stack.callback(thread.join)
        stack.callback(near.shutdown, socket.SHUT_RDWR)
        subscribers = [
            SubscriberConnection(TargetConnection("subscriber", pair[0], b""), CELL.topic_names) for pair in rest
        ]
        yield Participants(TargetConnection("publisher", near, b""), subscribers)


def test_expected_bytes_start_after_the_preflight() -> None:
    numbers = {b"topic0000": 97, b"topic0001": 5}
    with party_at(numbers) as participants:
        per_subscriber = verify(participants, WIRES["hermod"], CELL)
    assert per_subscriber == ExpectedBytes.numbered(2 * (HEADER_BYTES + CELL.payload_bytes), numbers.values())
    assert numbers[b"topic0000"] == 99


def test_sequences_that_skip_are_found() -> None:
    def skip(topic: bytes, payload: bytes) -> int:
        return 2 if payload == CELL.payload else 1

    with (
        party_at({b"topic0000": 3, b"topic0001": 3}, skip) as participants,
        pytest.raises(RemoteError, match=r"wrong bytes before timing: .* at 293: "),
    ):
        verify(participants, WIRES["hermod"], CELL)
