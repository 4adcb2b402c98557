"""Many subscriptions, each to another topic or another prefix, over a hundred connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from polycast.bench.scale.broker_process import BrokerProcess, run_broker
from polycast.bench.scale.cycle import (
    LISTENERS,
    message_ns,
    message_rate,
    open_subscriber,
    pump_cycles,
    run_for,
    run_once,
    subscribe_all,
)
from polycast.bench.scale.points import Values, per_unit
from polycast.bench.target_connections import TargetConnection

CONNECTIONS = 100
STEM_FORMAT = "t{:07d}."
EXACT_END, PREFIX_END = "x", ">"
"""Stem and end are the topic `t0000001.x`, or the pattern `t0000001.>`."""
UNUSED_STEM = "unused."


def measure_subscriptions(count: int, end: str, seconds: float) -> Values:
    """`count`: a multiple of the connections, so that each has the same share."""
    stems = [STEM_FORMAT.format(number) for number in range(count)]
    topics = [stem + EXACT_END for stem in stems]
    with run_broker(LISTENERS) as broker, _connect(broker, min(count, CONNECTIONS)) as subscribers:
        before = broker.memory()
        took = subscribe_all(subscribers, [stem + end for stem in stems])
        subscribed = broker.memory()
        with pump_cycles(broker, subscribers, topics) as pump:
            first = run_once(pump)
            again = run_for(pump, seconds, count)
            subscribe_all(subscribers[:1], [UNUSED_STEM + end])
            changed = run_once(pump)
        return {
            "subscribe_seconds": took,
            "unit_bytes": per_unit(before, subscribed, count),
            "first_ns": message_ns(first, count),
            "again_ns": message_ns(again, count),
            "changed_ns": message_ns(changed, count),
            "again": message_rate(again, count),
            "memory": broker.memory(),
        }


@contextmanager
def _connect(broker: BrokerProcess, count: int) -> Iterator[list[TargetConnection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(open_subscriber(broker, f"subscriber {number}")) for number in range(count)]
