r"""Wire formats with acknowledged publications.

hermod     {"topic": "NAME", "payload_size": LENGTH, "checksum": "SHA1"}DATA         ->  {"status": "OK"}\n
           {"batch_type": "Count", "count": N}, then N of these       ->  {"status": "OK", "count": N}\n
jetstream  PUB NAME INBOX LENGTH\r\nDATA\r\n    ->  MSG INBOX SID LENGTH\r\n{"stream":"BENCH","seq":N}\r\n
           a batch is N of these
js-atomic  HPUB NAME [INBOX] HEADER-LENGTH LENGTH\r\nNATS/1.0\r\nNats-Batch-Id: ...\r\n\r\nDATA\r\n
           a batch is N of these; the last has an inbox, and `Nats-Batch-Commit: 1` (ADR-50)

A JetStream client uses one inbox per message, to tell the acknowledgements apart. The driver uses one inbox per
connection, which is less work for the server.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod

from polycast.bench.ack_counters import AckCounter, EqualAckCounter, NumberedAckCounter
from polycast.bench.wires.dialect_formats import Hermod
from polycast.bench.wires.wire_format import Handshake
from polycast.errors import RemoteError

STREAM = b"BENCH"


class AckedWireFormat(ABC):
    """`connection`: its number, from 0."""

    handshake = Handshake()

    def prepare(self, connection: int, topics: list[str]) -> Handshake:
        """Exchanged before the first publication."""
        return Handshake()

    @abstractmethod
    def publish(self, connection: int, topic: str, payload: bytes, batch: int) -> bytes:
        """One batch of `batch` messages; 1: a single message."""

    def acks(self, batch: int) -> int:
        """Acknowledgements per batch."""
        return 1

    @abstractmethod
    def ack_counter(self, batch: int) -> AckCounter: ...

    def check(self, acks: bytes, batch: int) -> None:
        """Parses acknowledgements that were counted. Slow: not while the clock runs."""
        return


class HermodAcked(AckedWireFormat):
    def publish(self, connection: int, topic: str, payload: bytes, batch: int) -> bytes:
        message = Hermod().publish(topic, payload)
        return message if batch == 1 else b'{"batch_type": "Count", "count": %d}' % batch + message * batch

    def ack_counter(self, batch: int) -> AckCounter:
        return EqualAckCounter(b'{"status": "OK"}\n' if batch == 1 else b'{"status": "OK", "count": %d}\n' % batch)


class JetStream(AckedWireFormat):
    """One stream for all topics. Creating it again with the same settings is no error."""

    handshake = Handshake(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n', b"PONG\r\n")
    atomic = False

    def __init__(self, replicas: int = 1) -> None:
        self._replicas = replicas

    def prepare(self, connection: int, topics: list[str]) -> Handshake:
        settings = {
            "name": STREAM.decode(), "subjects": topics, "storage": "file", "allow_atomic": self.atomic,
            "num_replicas": self._replicas,
        }  # fmt: skip
        request = json.dumps(settings).encode()
        subscribe = b"SUB %b 1\r\n" % self.inbox(connection)
        create = b"PUB $JS.API.STREAM.CREATE.%b %b %d\r\n%b\r\n"
        return Handshake(
            subscribe + create % (STREAM, self.inbox(connection), len(request), request), b'"created":'
        )

    def inbox(self, connection: int) -> bytes:
        return b"_INBOX.%d" % connection

    def publish(self, connection: int, topic: str, payload: bytes, batch: int) -> bytes:
        head = b"PUB %b %b %d\r\n" % (topic.encode(), self.inbox(connection), len(payload))
        return (head + payload + b"\r\n") * batch

    def acks(self, batch: int) -> int:
        return 1 if self.atomic else batch

    def ack_counter(self, batch: int) -> AckCounter:
        return NumberedAckCounter(b'\r\n{"stream":"%b","seq":' % STREAM, (b'"error"', b"-ERR"))

    def check(self, acks: bytes, batch: int) -> None:
        read = [json.loads(line) for line in acks.split(b"\r\n") if line.startswith(b"{")]
        sequences = [ack["seq"] for ack in read if ack["stream"] == STREAM.decode()]
        if len(sequences) < len(read) or sequences != sorted(set(sequences)):
            raise RemoteError(f"invalid acknowledgements: {read}")
        if self.atomic and any(ack["count"] != batch for ack in read):
            raise RemoteError(f"batches that are not of {batch} messages: {read}")


class JetStreamAtomic(JetStream):
    """Atomic batches. A batch id may be reused once its batch is committed."""

    atomic = True

    def publish(self, connection: int, topic: str, payload: bytes, batch: int) -> bytes:
        return b"".join(self._message(connection, topic, payload, number, batch) for number in range(1, batch + 1))

    def _message(self, connection: int, topic: str, payload: bytes, number: int, batch: int) -> bytes:
        last = number == batch
        commit = b"Nats-Batch-Commit: 1\r\n" if last else b""
        head = b"NATS/1.0\r\nNats-Batch-Id: %d\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (connection, number, commit)
        inbox = self.inbox(connection) + b" " if last else b""
        sizes = len(head), len(head) + len(payload)
        return b"HPUB %b %b%d %d\r\n%b%b\r\n" % (topic.encode(), inbox, *sizes, head, payload)


ACKED_WIRES: dict[str, AckedWireFormat] = {
    "hermod": HermodAcked(),
    "jetstream": JetStream(),
    "js-atomic": JetStreamAtomic(),
    "js-cluster": JetStream(replicas=3),
}
