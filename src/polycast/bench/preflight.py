"""Before the clock starts: every subscription works, and every delivered byte is correct.

Not every protocol acknowledges subscriptions. So the publisher sends probes on the *last* topic of each subscriber
until every subscriber has received one; a connection's subscriptions take effect in order, so the earlier ones are
active too. A fence message follows. After the fence nothing is in flight: the next two cycles are compared byte by
byte, and all later bytes are counted (see `expected_bytes`).

Two cycles, because the sequences of a running target are unknown: the first cycle shows them, the second shows
that they increase by one.
"""

from __future__ import annotations

from time import monotonic

from polycast.bench.cells import Cell
from polycast.bench.expected_bytes import ExpectedBytes
from polycast.bench.target_connections import (
    EXCERPT_BYTES,
    RESPONSE_LIMIT_SECONDS,
    Participants,
    SubscriberConnection,
)
from polycast.bench.wires import WireFormat
from polycast.errors import RemoteError

PROBE_INTERVAL_SECONDS = 0.25
PROBE = b"polycast-probe"
FENCE = b"polycast-fence"
CYCLES = 2


def verify(participants: Participants, wire: WireFormat, cell: Cell) -> ExpectedBytes:
    """The bytes that each subscriber receives from here on; the same for all."""
    topics = sorted({subscriber.topics[-1] for subscriber in participants.subscribers})
    fences = b"".join(wire.publish(topic, FENCE) for topic in topics)
    cycle = b"".join(wire.publish(topic, cell.payload) for topic in cell.topic_names)
    _probe(participants, b"".join(wire.publish(topic, PROBE) for topic in topics))
    participants.publisher.send(fences)
    for subscriber in participants.subscribers:
        _drain_to_fence(subscriber, wire)
    participants.publisher.send(cycle * CYCLES + fences)
    all_expected = {_check(subscriber, wire, cell) for subscriber in participants.subscribers}
    if len(all_expected) > 1:
        raise RemoteError(f"the sequences of the topics differ before timing: {all_expected}")
    return all_expected.pop()


def _probe(participants: Participants, probes: bytes) -> None:
    waiting = [subscriber.connection for subscriber in participants.subscribers]
    deadline = monotonic() + RESPONSE_LIMIT_SECONDS
    while waiting:
        if monotonic() > deadline:
            raise RemoteError(f"{len(waiting)} subscribers received no probe within {RESPONSE_LIMIT_SECONDS:g} s")
        participants.publisher.send(probes)
        round_end = monotonic() + PROBE_INTERVAL_SECONDS
        waiting = [
            connection
            for connection in waiting
            if not connection.read_until(lambda inbox: PROBE in inbox, round_end)
        ]


def _drain_to_fence(subscriber: SubscriberConnection, wire: WireFormat) -> bytes:
    """Waits for the fence; returns and clears the inbox."""
    connection = subscriber.connection
    _, payload, rest = wire.delivered(subscriber.topics[-1], FENCE, 0, 0).partition(FENCE)
    connection.await_bytes(lambda inbox: inbox.endswith(payload + rest), "fence")
    arrived, connection.inbox = connection.inbox, b""
    return arrived


def _check(subscriber: SubscriberConnection, wire: WireFormat, cell: Cell) -> ExpectedBytes:
    """Compares the received bytes with the expected ones."""
    arrived = _drain_to_fence(subscriber, wire)
    numbered = list(enumerate(subscriber.topics, 1))
    known = wire.sequences(arrived)
    first = {topic: known.get(topic, 0) for topic in subscriber.topics}
    expected = [
        wire.delivered(topic, cell.payload, number, first[topic] + turn)
        for turn in range(CYCLES)
        for number, topic in numbered
    ]
    number, topic = numbered[-1]
    expected.append(wire.delivered(topic, FENCE, number, first[topic] + CYCLES))
    if arrived != b"".join(expected):
        raise RemoteError(_difference(subscriber.connection.name, arrived, b"".join(expected)))
    return _expected_bytes(wire, cell, numbered, first)


def _expected_bytes(
    wire: WireFormat, cell: Cell, numbered: list[tuple[int, str]], first: dict[str, int]
) -> ExpectedBytes:
    cycle_bytes = sum(len(wire.delivered(topic, cell.payload, number, 0)) for number, topic in numbered)
    if not wire.numbered:
        return ExpectedBytes(cycle_bytes)
    _, fenced = numbered[-1]
    following = [first[topic] + CYCLES + (topic == fenced) for _, topic in numbered]
    return ExpectedBytes.numbered(cycle_bytes - len(numbered) * len("0"), following)


def _difference(name: str, arrived: bytes, expected: bytes) -> str:
    shared = min(len(arrived), len(expected))
    position = next((at for at in range(shared) if arrived[at] != expected[at]), shared)
    return (
        f"{name}: wrong bytes before timing: {len(arrived)} received, {len(expected)} expected; at {position}: "
        f"{arrived[position:][:EXCERPT_BYTES]!r} instead of {expected[position:][:EXCERPT_BYTES]!r}"
    )
