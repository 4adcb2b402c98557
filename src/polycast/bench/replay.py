"""Replay: one subscriber asks for everything in the log and counts bytes until the last has come.

First the proof: the first and the last messages of the log, compared byte by byte. What lies between is held
to the exact number of bytes, as in the pump, digit by digit of the sequences.
"""

from __future__ import annotations

from time import monotonic, perf_counter

from polycast.bench.cells import Cell
from polycast.bench.job import Job, Outcome
from polycast.bench.ledger import Ledger
from polycast.bench.links import EXCERPT_BYTES, Link, connected
from polycast.bench.pump import DISCARD, QUIET_SECONDS, READ_BYTES, STALL_LIMIT_SECONDS
from polycast.bench.wires import WIRES, Greeting
from polycast.errors import RemoteError

ACCEPTED = b'{"status": "OK"}\n'
PROOF_MESSAGES = 1000
EXCERPT_LIMIT = 200


def measure(job: Job) -> Outcome:
    cell = job.cell
    prove(cell, job.subscribe_port, 0)
    prove_end(cell, job.subscribe_port)
    with connected("subscriber", job.subscribe_port, Greeting()) as link:
        elapsed = _time(link, ask(cell.topic_names, b'"earliest"'), len(ACCEPTED) + owed_bytes(cell))
    return Outcome(published=cell.stored, delivered=cell.stored, elapsed=elapsed)


def ask(topics: list[str], start: bytes) -> bytes:
    return b'{"topics": [%b], "from": %b}' % (b", ".join(b'"%b"' % topic.encode() for topic in topics), start)


def owed_bytes(cell: Cell) -> int:
    """All that is stored, in hermod's bytes, from sequence 0 of each topic on."""
    topics = cell.topic_names
    cycle = sum(len(WIRES["hermod"].delivered(topic, cell.payload, 0, 0)) - len("0") for topic in topics)
    return Ledger.numbered(cycle, [0] * cell.topics).owed(cell.stored // cell.topics)


def prove(cell: Cell, port: int, first: int) -> None:
    """Compare some messages of the first topic from this sequence on."""
    topic = cell.topic_names[0]
    last = min(first + PROOF_MESSAGES, cell.stored // cell.topics)
    wire = WIRES["hermod"]
    owed = ACCEPTED + b"".join(wire.delivered(topic, cell.payload, 0, number) for number in range(first, last))
    with connected("subscriber", port, Greeting()) as link:
        link.send(ask([topic], b'{"%b": %d}' % (topic.encode(), first)))
        link.await_bytes(lambda inbox: len(inbox) >= len(owed) or not owed.startswith(inbox), "replay")
        if not link.inbox.startswith(owed):
            place = next(at for at, byte in enumerate(link.inbox) if byte != owed[at])
            got = link.inbox[max(0, place - EXCERPT_BYTES) :][:EXCERPT_LIMIT]
            raise RemoteError(f"replay from sequence {first}: wrong bytes from byte {place} on: {got!r}")


def prove_end(cell: Cell, port: int) -> None:
    prove(cell, port, max(0, cell.stored // cell.topics - PROOF_MESSAGES))


def _time(link: Link, request: bytes, owed: int) -> float:
    buffer = bytearray(READ_BYTES)
    start = perf_counter()
    link.send(request)
    link.socket.settimeout(STALL_LIMIT_SECONDS)
    got = 0
    while got < owed:
        try:
            count = link.socket.recv_into(buffer, 0, DISCARD)
        except TimeoutError:
            count = 0
        if not count:
            raise RemoteError(f"the replay ended after {got} of {owed} bytes")
        got += count
    elapsed = perf_counter() - start
    if link.hears(bool, monotonic() + QUIET_SECONDS) or got > owed:
        raise RemoteError(f"more came than is in the log: {owed} bytes are owed")
    return elapsed
