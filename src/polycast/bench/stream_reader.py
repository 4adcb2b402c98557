"""A bare reader of a JetStream stream: a pull consumer with nats-py that fetches everything and applies nothing.

What JetStream gives one client that does no work: the upper bound for a node that catches up. The consumer has the
settings of a node's own (in memory, without acknowledgements). The stream is one of its own, with as many bytes as
the messages of the cell have: nodes pack theirs, and the bytes would not be comparable.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from polycast.bench.cells import Cell
from polycast.bench.cpu_time import measure_cpu_time
from polycast.bench.job import Job, Outcome
from polycast.bench.target_connections import HOST
from polycast.errors import RemoteError

STREAM = SUBJECT = "PLAIN"
BLOCK_BYTES = 128 * 1024
"""Of a message of the stream: about as many as a busy node gathers in one."""
IN_FLIGHT = 8
BATCH = 64
"""Messages per fetch, as a node has them."""
FETCH_LIMIT_SECONDS = 10.0


def fill_stream(cell: Cell, port: int, replicas: int) -> None:
    """Writes the stream that the reader reads."""
    asyncio.run(_fill(-(-cell.stored * cell.message_bytes // BLOCK_BYTES), port, replicas))


async def _fill(blocks: int, port: int, replicas: int) -> None:
    connection = await nats.connect(f"nats://{HOST}:{port}")
    try:
        stream = connection.jetstream()
        await stream.add_stream(name=STREAM, subjects=[SUBJECT], num_replicas=replicas)
        for start in range(0, blocks, IN_FLIGHT):
            count = min(IN_FLIGHT, blocks - start)
            await asyncio.gather(*(stream.publish(SUBJECT, bytes(BLOCK_BYTES)) for _ in range(count)))
    finally:
        await connection.close()


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
    if read < job.cell.stored * job.cell.message_bytes:
        raise RemoteError(f"the stream has {read:,} bytes, fewer than its messages")
    return Outcome(job.cell.stored, delivered=job.cell.stored, elapsed=elapsed, cpu=cpu)


async def _read(stream: JetStreamContext, last: int) -> int:
    """Reads all messages; returns the number of bytes."""
    settings = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, mem_storage=True)
    consumer = await stream.pull_subscribe(SUBJECT, config=settings, stream=STREAM)
    messages = size = 0
    while messages < last:
        fetched = await consumer.fetch(min(BATCH, last - messages), timeout=FETCH_LIMIT_SECONDS)
        messages += len(fetched)
        size += sum(len(message.data) for message in fetched)
    return size
