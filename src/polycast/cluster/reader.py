"""The reader: the messages of the stream, each once, in order, from any sequence on.

It has a pull consumer of its own, in memory and without acknowledgements, and makes a new one at any doubt. The
consumer numbers what it delivers: a jump of that number means that a message was lost on the way; a jump of the
stream sequence alone means that the stream has removed messages.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from polycast.cluster.inbox import Inbox, InboxQueue
from polycast.cluster.stream import ApiError, Stream
from polycast.errors import PolycastError, StartError

log = logging.getLogger("polycast.cluster")

BATCH = 64
BATCH_BYTES = 8 * 1024 * 1024
HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS = 3.0
EXPIRES_SECONDS = 30.0
INACTIVE_SECONDS = 60
AGAIN_SECONDS = 0.2
NANO = 10**9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ENDS_PULL = ("408", "409")


class DoubtError(Exception):
    """A new consumer is needed."""


class RemovedError(PolycastError):
    """The stream has removed messages that were not read."""


class Delivered(NamedTuple):
    sequence: int
    data: bytes
    micros: int
    """When the stream got the message, by the clock of its leader then. The same for all readers."""


class StreamReader:
    def __init__(self, stream: Stream, node: str, stream_id: str, check: Callable[[], Awaitable[None]]) -> None:
        """`stream_id`: see `StreamInfo.id`. Nothing is read from another stream with the same name. `check` raises
        ClusterError if the stream has other messages than before."""
        self._stream = stream
        self._id = stream_id
        self._node = node
        self._check = check
        self.restarts = 0

    async def read(self, sequence: int) -> AsyncIterator[Delivered]:
        """From this stream sequence on, for ever. Raises RemovedError, and what `check` raises."""
        expected = sequence
        while True:
            try:
                async for delivered in self._consume(expected):
                    expected = delivered.sequence + 1
                    yield delivered
            except (DoubtError, ApiError, NatsError, OSError) as error:  # TimeoutError is an OSError: no heartbeat
                log.debug("a new consumer from %s on: %r", expected, error)
                self.restarts += 1
            await asyncio.sleep(AGAIN_SECONDS)

    async def _consume(self, sequence: int) -> AsyncIterator[Delivered]:
        name = f"{self._node}-{secrets.token_hex(4)}"
        await self._create(name, sequence)
        await self._check_stream(sequence)
        queue = InboxQueue()
        inbox = await Inbox.open(self._stream.connection, queue.put)
        pull = _Pull(self._stream, name, inbox.subject)
        expected, delivered = sequence, 0
        try:
            while True:
                await pull.refill()
                message = await queue.get(SILENCE_SECONDS)
                if message.headers and "Status" in message.headers:
                    pull.note_status(message)
                    continue
                metadata = message.metadata
                numbers = metadata.sequence
                delivered += 1
                if numbers.consumer != delivered:
                    raise DoubtError(f"message {numbers.consumer} instead of {delivered}")
                if numbers.stream != expected:
                    raise RemovedError(
                        f"the stream has removed messages from {expected:,} to {numbers.stream - 1:,}"
                    )
                expected += 1
                pull.outstanding -= 1
                yield Delivered(numbers.stream, message.data, (metadata.timestamp - EPOCH) // MICROSECOND)
        finally:
            await inbox.close()

    async def _create(self, name: str, sequence: int) -> None:
        config = {
            "name": name, "ack_policy": "none", "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, sequence), "mem_storage": True, "num_replicas": 1, "replay_policy": "instant",
            "inactive_threshold": INACTIVE_SECONDS * NANO, "max_waiting": 16,
        }  # fmt: skip
        body = {"stream_name": self._stream.name, "config": config, "action": "create"}
        await self._stream.call(f"CONSUMER.CREATE.{self._stream.name}.{name}", body)

    async def _check_stream(self, sequence: int) -> None:
        """After the consumer was created: if the stream is the right one now, it was the right one then."""
        try:
            info = await self._stream.info()
        except StartError as error:
            raise DoubtError(str(error)) from error
        if info is None or info.id != self._id:
            raise DoubtError("another stream")
        if info.last < sequence - 1:
            raise DoubtError(f"the stream ends at message {info.last:,}")
        await self._check()


class _Pull:
    def __init__(self, stream: Stream, consumer: str, inbox: str) -> None:
        self._stream = stream
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.{consumer}"
        self._inbox = inbox
        self.outstanding = 0

    async def refill(self) -> None:
        if self.outstanding <= BATCH // 2:
            count = BATCH - self.outstanding
            self.outstanding = BATCH
            pull = {
                "batch": count, "max_bytes": BATCH_BYTES, "expires": int(EXPIRES_SECONDS * NANO),
                "idle_heartbeat": int(HEARTBEAT_SECONDS * NANO),
            }  # fmt: skip
            await self._stream.connection.publish(self._subject, json.dumps(pull).encode(), reply=self._inbox)

    def note_status(self, message: Msg) -> None:
        headers = message.headers or {}
        status, text = headers["Status"], headers.get("Description", "")
        if status in ENDS_PULL and "Consumer" not in text:
            self.outstanding -= int(headers.get("Nats-Pending-Messages", self.outstanding))
        elif status != "100":
            raise DoubtError(f"{status} {text}")
