"""Cycles over many topics: one message on each, every delivery counted.

The dialect is fanout: it subscribes to exact topics and to prefixes, greets every connection, and replies to
`time`, which is a fence behind subscriptions. A delivery has the size of its publication.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from time import perf_counter

from polycast.bench.job import WINDOW_BYTES
from polycast.bench.pump import Flow, Pump, Traffic
from polycast.bench.scale.broker_process import BrokerProcess
from polycast.bench.target_connections import TargetConnection, open_connection
from polycast.bench.wires import WIRES

WIRE = WIRES["fanout"]
PUBLISH, SUBSCRIBE = LISTENERS = WIRE.listeners or ("", "")
PAYLOAD = b"0123456789abcdef" * 6 + b"0123"
FENCE = b"time\n"
MOMENT_SECONDS = 1e-3
"""A run of this length publishes one cycle: the window has no room for a second one."""
WINDOW_CYCLES = 2


@contextmanager
def open_subscriber(broker: BrokerProcess, name: str) -> Iterator[TargetConnection]:
    """Greeted: the broker has accepted it."""
    with open_connection(name, broker.ports[SUBSCRIBE], WIRE.subscriber) as connection:
        connection.inbox = b""
        yield connection


def subscribe_all(subscribers: Sequence[TargetConnection], patterns: Sequence[str]) -> float:
    """Deals the patterns out in turn; the seconds until all subscriptions are active."""
    lines = [_subscriptions(patterns[index :: len(subscribers)]) for index in range(len(subscribers))]
    start = perf_counter()
    for subscriber, text in zip(subscribers, lines, strict=True):
        subscriber.send(text + FENCE)
    for subscriber in subscribers:
        subscriber.await_bytes(lambda inbox: inbox.endswith(b"\n"), "reply to time")
        subscriber.inbox = b""
    return perf_counter() - start


def _subscriptions(patterns: Sequence[str]) -> bytes:
    return b"".join(WIRE.subscribe(pattern, 1) for pattern in patterns)


@contextmanager
def pump_cycles(
    broker: BrokerProcess, subscribers: Sequence[TargetConnection], topics: Sequence[str]
) -> Iterator[Pump]:
    """A chunk of this pump is one cycle. Every subscriber must receive the same share of it."""
    chunk = b"".join(WIRE.publish(topic, PAYLOAD) for topic in topics)
    share = len(chunk) // len(subscribers)
    traffic = Traffic(chunk, lambda chunks: chunks * share, 0)
    sockets = [subscriber.socket for subscriber in subscribers]
    with (
        open_connection("publisher", broker.ports[PUBLISH], WIRE.publisher) as publisher,
        closing(Pump(publisher.socket, sockets, traffic, (broker.process,))) as pump,
    ):
        yield pump


def run_once(pump: Pump) -> Flow:
    return pump.run(MOMENT_SECONDS, 1)


def run_for(pump: Pump, seconds: float, topics: int) -> Flow:
    return pump.run(seconds, max(WINDOW_CYCLES, WINDOW_BYTES // (topics * len(PAYLOAD))))


def message_rate(flow: Flow, topics: int) -> float:
    return flow.chunks * topics / flow.elapsed


def message_ns(flow: Flow, topics: int) -> float:
    """CPU time of the broker."""
    return flow.cpu.target / (flow.chunks * topics) * 1e9
