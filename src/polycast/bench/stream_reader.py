"""A bare reader of a JetStream stream: a pull consumer with nats-py that fetches everything and applies nothing.

What JetStream gives one client that does no work: the upper bound for a node that catches up. The consumer has the
settings of a node's own (in memory, without acknowledgements).
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from polycast.bench.cpu_time import measure_cpu_time
from polycast.bench.job import Job, Outcome
from polycast.bench.target_connections import HOST
from polycast.errors import RemoteError

STREAM = "POLYCAST"
BATCH = 64
"""Messages per fetch, as a node has them; each is a burst of many messages."""
FETCH_LIMIT_SECONDS = 10.0


def measure(job: Job) -> Outcome:
    return asyncio.run(_measure(job))


async def _measure(job: Job) -> Outcome:
    connection = await nats.connect(f"nats://{HOST}:{job.publish_port}")
    try:
        stream = connection.jetstream()
        last = (await stream.stream_info(STREAM)).state.last_seq
        cpu = measure_cpu_time(job.processes)
        start = perf_counter()
        read = await _read(stream, last)
        elapsed = perf_counter() - start
        cpu = measure_cpu_time(job.processes).since(cpu)
    finally:
        await connection.close()
    if read < job.cell.stored * job.cell.payload_bytes:
        raise RemoteError(f"the stream has {read:,} bytes, fewer than its messages")
    return Outcome(job.cell.stored, delivered=job.cell.stored, elapsed=elapsed, cpu=cpu)


async def _read(stream: JetStreamContext, last: int) -> int:
    """Reads all messages; returns the number of bytes."""
    settings = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, mem_storage=True)
    consumer = await stream.pull_subscribe(f"{STREAM}.log", config=settings, stream=STREAM)
    messages = size = 0
    while messages < last:
        fetched = await consumer.fetch(min(BATCH, last - messages), timeout=FETCH_LIMIT_SECONDS)
        messages += len(fetched)
        size += sum(len(message.data) for message in fetched)
    return size
