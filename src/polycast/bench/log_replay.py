"""Replay: one subscriber reads the whole log and counts bytes.

First the oldest and the newest messages of the log are compared byte by byte. The bytes in between must have the
exact total, including the digits of the sequences.
"""

from __future__ import annotations

from time import monotonic, perf_counter

from polycast.bench.cells import Cell
from polycast.bench.cpu_time import measure_cpu_time
from polycast.bench.expected_bytes import ExpectedBytes
from polycast.bench.job import Job, Outcome
from polycast.bench.pump import DISCARD, QUIET_SECONDS, READ_BYTES, STALL_LIMIT_SECONDS
from polycast.bench.target_connections import EXCERPT_BYTES, TargetConnection, open_connection
from polycast.bench.wires import WIRES, Handshake
from polycast.errors import RemoteError

ACCEPTED = b'{"status": "OK"}\n'
PROOF_MESSAGES = 1000
EXCERPT_LIMIT = 200


def measure(job: Job) -> Outcome:
    cell = job.cell
    verify(cell, job.subscribe_port, 0)
    verify_end(cell, job.subscribe_port)
    with open_connection("subscriber", job.subscribe_port, Handshake()) as connection:
        cpu = measure_cpu_time(job.processes)
        elapsed = _time(
            connection, to_subscribe(cell.topic_names, b'"earliest"'), len(ACCEPTED) + expected_bytes(cell)
        )
        cpu = measure_cpu_time(job.processes).since(cpu)
    return Outcome(published=cell.stored, delivered=cell.stored, elapsed=elapsed, cpu=cpu)


def to_subscribe(topics: list[str], start: bytes) -> bytes:
    return b'{"topics": [%b], "from": %b}' % (b", ".join(b'"%b"' % topic.encode() for topic in topics), start)


def expected_bytes(cell: Cell) -> int:
    """All stored messages in hermod's format, from sequence 0 of each topic."""
    topics = cell.topic_names
    cycle = sum(len(WIRES["hermod"].delivered(topic, cell.payload, 0, 0)) - len("0") for topic in topics)
    return ExpectedBytes.numbered(cycle, [0] * cell.topics).expected(cell.stored // cell.topics)


def verify(cell: Cell, port: int, first: int) -> None:
    """Compares messages of the first topic, from sequence `first`."""
    topic = cell.topic_names[0]
    last = min(first + PROOF_MESSAGES, cell.stored // cell.topics)
    wire = WIRES["hermod"]
    expected = ACCEPTED + b"".join(wire.delivered(topic, cell.payload, 0, number) for number in range(first, last))
    with open_connection("subscriber", port, Handshake()) as connection:
        connection.send(to_subscribe([topic], b'{"%b": %d}' % (topic.encode(), first)))
        connection.await_bytes(
            lambda inbox: len(inbox) >= len(expected) or not expected.startswith(inbox), "replay"
        )
        if not connection.inbox.startswith(expected):
            position = next(at for at, byte in enumerate(connection.inbox) if byte != expected[at])
            got = connection.inbox[max(0, position - EXCERPT_BYTES) :][:EXCERPT_LIMIT]
            raise RemoteError(f"replay from sequence {first}: wrong bytes from byte {position} on: {got!r}")


def verify_end(cell: Cell, port: int) -> None:
    verify(cell, port, max(0, cell.stored // cell.topics - PROOF_MESSAGES))


def _time(connection: TargetConnection, request: bytes, expected: int) -> float:
    buffer = bytearray(READ_BYTES)
    start = perf_counter()
    connection.send(request)
    connection.socket.settimeout(STALL_LIMIT_SECONDS)
    got = 0
    while got < expected:
        try:
            count = connection.socket.recv_into(buffer, 0, DISCARD)
        except TimeoutError:
            count = 0
        if not count:
            raise RemoteError(f"the replay ended after {got} of {expected} bytes")
        got += count
    elapsed = perf_counter() - start
    if connection.read_until(bool, monotonic() + QUIET_SECONDS) or got > expected:
        raise RemoteError(f"more bytes than the log has: {expected} expected")
    return elapsed
