"""Replay against a small log, correct and faulty."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha1

import pytest

from polycast.bench.cells import Cell
from polycast.bench.job import Job
from polycast.bench.log_replay import measure
from polycast.errors import RemoteError

CELL = Cell("small", "small", kind="replay", dialects=("hermod",), payload_bytes=16, stored=1200)
DIGEST = sha1(CELL.payload).hexdigest().encode()

Messages = Callable[[int], Iterator[bytes]]


def message(sequence: int) -> bytes:
    head = b'{"topic": "topic0000", "sequence": %d, "payload_size": 16, "checksum": "%b"}'
    return head % (sequence, DIGEST) + CELL.payload


def honest(first: int) -> Iterator[bytes]:
    yield from map(message, range(first, CELL.stored))


def repeating(first: int) -> Iterator[bytes]:
    """The last message comes twice, but only to those who were there from the beginning."""
    yield from honest(first)
    if first == 0:
        yield message(CELL.stored - 1)


def skipping(first: int) -> Iterator[bytes]:
    """One message in the middle is missing."""
    yield from (message(number) for number in range(first, CELL.stored) if number != 1100 or first > 0)


def starting_over(first: int) -> Iterator[bytes]:
    yield from honest(0)


@contextmanager
def log_of(messages: Messages) -> Iterator[Job]:
    class SubscriberConnection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            start = json.loads(self.request.recv(4096))["from"]
            first = 0 if start == "earliest" else start["topic0000"]
            try:
                self.request.sendall(b'{"status": "OK"}\n' + b"".join(messages(first)))
                self.request.recv(1)
            except OSError:
                return  # a proof has seen enough

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), SubscriberConnection) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            port = server.server_address[1]
            yield Job("hermod", port, port, CELL, seconds=1.0)
        finally:
            server.shutdown()
            thread.join()


def test_everything_in_the_log_is_counted() -> None:
    with log_of(honest) as job:
        outcome = measure(job)
    assert outcome.delivered == 1200
    assert outcome.elapsed > 0


def test_a_repeated_message_is_an_error() -> None:
    with log_of(repeating) as job, pytest.raises(RemoteError, match="more bytes than the log has"):
        measure(job)


def test_a_missing_message_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polycast.bench.log_replay.STALL_LIMIT_SECONDS", 0.1)
    with log_of(skipping) as job, pytest.raises(RemoteError, match=r"the replay ended after \d+ of \d+ bytes"):
        measure(job)


def test_wrong_first_bytes_are_shown() -> None:
    with log_of(starting_over) as job, pytest.raises(RemoteError, match=r'from sequence 200: .*"sequence": 0'):
        measure(job)


def test_a_log_smaller_than_the_verified_part() -> None:
    small = replace(CELL, stored=20)
    with log_of(lambda first: map(message, range(first, 20))) as job:
        assert measure(replace(job, cell=small)).delivered == 20
