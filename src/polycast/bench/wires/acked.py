r"""The wires on which publications are acknowledged, and a publisher counts the acknowledgements.

hermod     {"topic": "NAME", "payload_size": LENGTH, "checksum": "SHA1"}DATA         ->  {"status": "OK"}\n
           {"batch_type": "Count", "count": N}, then N of these       ->  {"status": "OK", "count": N}\n
jetstream  PUB NAME INBOX LENGTH\r\nDATA\r\n    ->  MSG INBOX SID LENGTH\r\n{"stream":"BENCH","seq":N}\r\n
           a batch is N of these
js-atomic  HPUB NAME [INBOX] HEADER-LENGTH LENGTH\r\nNATS/1.0\r\nNats-Batch-Id: ...\r\n\r\nDATA\r\n
           a batch is N of these; the last has an inbox, and `Nats-Batch-Commit: 1` (ADR-50)

A real client of JetStream has another inbox for every message, to tell the answers apart. Here each
connection has one for all: that is less work for the server, and for nobody more.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod

from polycast.bench.tally import AlikeTally, NumberedTally, Tally
from polycast.bench.wires.base import Greeting
from polycast.bench.wires.dialects import Hermod
from polycast.errors import RemoteError

STREAM = b"BENCH"


class AckedWire(ABC):
    """`lane` is the number of a connection, from 0 on."""

    greeting = Greeting()

    def prepare(self, lane: int, topics: list[str]) -> Greeting:
        """What else is said and heard before the first publication."""
        return Greeting()

    @abstractmethod
    def publish(self, lane: int, topic: str, payload: bytes, batch: int) -> bytes:
        """A batch of so many messages; 1: a message by itself."""

    @abstractmethod
    def answers(self, batch: int) -> int:
        """How many answers a batch gets."""

    @abstractmethod
    def tally(self, batch: int) -> Tally: ...

    def check(self, answers: bytes, batch: int) -> None:
        """Read answers that a tally has counted, for what it cannot see. Slow: not while the clock runs."""
        return


class HermodAcked(AckedWire):
    def publish(self, lane: int, topic: str, payload: bytes, batch: int) -> bytes:
        message = Hermod().publish(topic, payload)
        return message if batch == 1 else b'{"batch_type": "Count", "count": %d}' % batch + message * batch

    def answers(self, batch: int) -> int:
        return 1

    def tally(self, batch: int) -> Tally:
        return AlikeTally(b'{"status": "OK"}\n' if batch == 1 else b'{"status": "OK", "count": %d}\n' % batch)


class JetStream(AckedWire):
    """One stream for all topics. To create it once more with the same settings is no error."""

    greeting = Greeting(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n', b"PONG\r\n")
    atomic = False

    def prepare(self, lane: int, topics: list[str]) -> Greeting:
        settings = {"name": STREAM.decode(), "subjects": topics, "storage": "file", "allow_atomic": self.atomic}
        request = json.dumps(settings).encode()
        subscribe = b"SUB %b 1\r\n" % self.inbox(lane)
        create = b"PUB $JS.API.STREAM.CREATE.%b %b %d\r\n%b\r\n"
        return Greeting(subscribe + create % (STREAM, self.inbox(lane), len(request), request), b'"created":')

    def inbox(self, lane: int) -> bytes:
        return b"_INBOX.%d" % lane

    def publish(self, lane: int, topic: str, payload: bytes, batch: int) -> bytes:
        head = b"PUB %b %b %d\r\n" % (topic.encode(), self.inbox(lane), len(payload))
        return (head + payload + b"\r\n") * batch

    def answers(self, batch: int) -> int:
        return batch

    def tally(self, batch: int) -> Tally:
        return NumberedTally(b'\r\n{"stream":"%b","seq":' % STREAM, (b'"error"', b"-ERR"))

    def check(self, answers: bytes, batch: int) -> None:
        read = [json.loads(line) for line in answers.split(b"\r\n") if line.startswith(b"{")]
        sequences = [answer["seq"] for answer in read if answer["stream"] == STREAM.decode()]
        if len(sequences) < len(read) or sequences != sorted(set(sequences)):
            raise RemoteError(f"acknowledgements that make no sense: {read}")
        if self.atomic and any(answer["count"] != batch for answer in read):
            raise RemoteError(f"batches that are not of {batch} messages: {read}")


class JetStreamAtomic(JetStream):
    """All of a batch or nothing. An id may come again once its batch is committed."""

    atomic = True

    def publish(self, lane: int, topic: str, payload: bytes, batch: int) -> bytes:
        return b"".join(self._message(lane, topic, payload, number, batch) for number in range(1, batch + 1))

    def _message(self, lane: int, topic: str, payload: bytes, number: int, batch: int) -> bytes:
        last = number == batch
        commit = b"Nats-Batch-Commit: 1\r\n" if last else b""
        head = b"NATS/1.0\r\nNats-Batch-Id: %d\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (lane, number, commit)
        inbox = self.inbox(lane) + b" " if last else b""
        sizes = len(head), len(head) + len(payload)
        return b"HPUB %b %b%d %d\r\n%b%b\r\n" % (topic.encode(), inbox, *sizes, head, payload)

    def answers(self, batch: int) -> int:
        return 1


ACKED_WIRES: dict[str, AckedWire] = {
    "hermod": HermodAcked(),
    "jetstream": JetStream(),
    "js-atomic": JetStreamAtomic(),
}
