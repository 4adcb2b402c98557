"""The proof: every subscription works, and every byte that arrives is the right one, before the clock runs.

Slow on purpose: it reads real bytes. Not every wire acknowledges a subscription, so one rule serves all: the
publisher sends probes on the topic each subscriber subscribed to *last* until every subscriber has heard one
(commands on one connection are obeyed in order, so the earlier ones are then in force too), then one fence.
After the fence nothing is in flight, and every later byte is accounted for: first two cycles, compared byte
by byte, then whatever the ledger says.

Two cycles, because a target that ran before has sequences that nobody told us: the first shows where they
stand, the second that they go on by one.
"""

from __future__ import annotations

from time import monotonic

from polycast.bench.cells import Cell
from polycast.bench.ledger import Ledger
from polycast.bench.links import ANSWER_LIMIT_SECONDS, EXCERPT_BYTES, Party, Subscriber
from polycast.bench.wires import Wire
from polycast.errors import RemoteError

PROBE_INTERVAL_SECONDS = 0.25
PROBE = b"polycast-probe"
FENCE = b"polycast-fence"
CYCLES = 2


def prove(party: Party, wire: Wire, cell: Cell) -> Ledger:
    """What each subscriber is owed from here on; they all are owed the same."""
    topics = sorted({subscriber.topics[-1] for subscriber in party.subscribers})
    fences = b"".join(wire.publish(topic, FENCE) for topic in topics)
    cycle = b"".join(wire.publish(topic, cell.payload) for topic in cell.topic_names)
    _probe(party, b"".join(wire.publish(topic, PROBE) for topic in topics))
    party.publisher.send(fences)
    for subscriber in party.subscribers:
        _drain_to_fence(subscriber, wire)
    party.publisher.send(cycle * CYCLES + fences)
    ledgers = {_check(subscriber, wire, cell) for subscriber in party.subscribers}
    if len(ledgers) > 1:
        raise RemoteError(f"the topics stand at different sequences before timing: {ledgers}")
    return ledgers.pop()


def _probe(party: Party, probes: bytes) -> None:
    deaf = [subscriber.link for subscriber in party.subscribers]
    deadline = monotonic() + ANSWER_LIMIT_SECONDS
    while deaf:
        if monotonic() > deadline:
            raise RemoteError(f"{len(deaf)} subscribers heard no probe within {ANSWER_LIMIT_SECONDS:g} s")
        party.publisher.send(probes)
        patience = monotonic() + PROBE_INTERVAL_SECONDS
        deaf = [link for link in deaf if not link.hears(lambda inbox: PROBE in inbox, patience)]


def _drain_to_fence(subscriber: Subscriber, wire: Wire) -> bytes:
    """Take everything out of the inbox once a fence ends it."""
    link = subscriber.link
    _, payload, rest = wire.delivered(subscriber.topics[-1], FENCE, 0, 0).partition(FENCE)
    link.await_bytes(lambda inbox: inbox.endswith(payload + rest), "fence")
    arrived, link.inbox = link.inbox, b""
    return arrived


def _check(subscriber: Subscriber, wire: Wire, cell: Cell) -> Ledger:
    """Compare what arrived with what is owed, then say what will be owed."""
    arrived = _drain_to_fence(subscriber, wire)
    numbered = list(enumerate(subscriber.topics, 1))
    known = wire.sequences(arrived)
    first = {topic: known.get(topic, 0) for topic in subscriber.topics}
    owed = [
        wire.delivered(topic, cell.payload, number, first[topic] + turn)
        for turn in range(CYCLES)
        for number, topic in numbered
    ]
    number, topic = numbered[-1]
    owed.append(wire.delivered(topic, FENCE, number, first[topic] + CYCLES))
    if arrived != b"".join(owed):
        raise RemoteError(_difference(subscriber.link.name, arrived, b"".join(owed)))
    return _ledger(wire, cell, numbered, first)


def _ledger(wire: Wire, cell: Cell, numbered: list[tuple[int, str]], first: dict[str, int]) -> Ledger:
    cycle_bytes = sum(len(wire.delivered(topic, cell.payload, number, 0)) for number, topic in numbered)
    if not wire.numbered:
        return Ledger(cycle_bytes)
    _, fenced = numbered[-1]
    following = [first[topic] + CYCLES + (topic == fenced) for _, topic in numbered]
    return Ledger.numbered(cycle_bytes - len(numbered) * len("0"), following)


def _difference(name: str, arrived: bytes, owed: bytes) -> str:
    shared = min(len(arrived), len(owed))
    place = next((at for at in range(shared) if arrived[at] != owed[at]), shared)
    return (
        f"{name}: wrong bytes before timing: {len(arrived)} arrived, {len(owed)} owed; from byte {place}: "
        f"{arrived[place : place + EXCERPT_BYTES]!r} instead of {owed[place : place + EXCERPT_BYTES]!r}"
    )
