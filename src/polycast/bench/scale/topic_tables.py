"""Many topics, one message on each: what it takes to remember them, and what happens past `limits.topics`."""

from __future__ import annotations

from polycast.bench.scale.broker_process import run_broker
from polycast.bench.scale.cycle import (
    LISTENERS,
    message_ns,
    message_rate,
    open_subscriber,
    pump_cycles,
    run_once,
    subscribe_all,
)
from polycast.bench.scale.points import Values, per_unit

TOPIC_FORMAT = "topic{:08d}"
EVERYTHING = ">"
WARM_TOPICS = 1000


def measure_topics(count: int, limit: int | None) -> Values:
    """`limit`: of remembered topics; None: twice as many as there are, so that none is forgotten."""
    settings = [f"limits.topics={limit or 2 * max(count, WARM_TOPICS)}"]
    topics = [TOPIC_FORMAT.format(number) for number in range(count)]
    with run_broker(LISTENERS, settings) as broker, open_subscriber(broker, "subscriber") as subscriber:
        subscribe_all([subscriber], [EVERYTHING])
        with pump_cycles(broker, [subscriber], [TOPIC_FORMAT.format(0)] * WARM_TOPICS) as pump:
            run_once(pump)  # the memory for reads is in use from here on
        before = broker.memory()
        with pump_cycles(broker, [subscriber], topics) as pump:
            first = run_once(pump)
            after = broker.memory()
            again = run_once(pump)
        return {
            "first": message_rate(first, count),
            "first_ns": message_ns(first, count),
            "again": message_rate(again, count),
            "again_ns": message_ns(again, count),
            "unit_bytes": per_unit(before, after, count),
            "memory": after,
        }
