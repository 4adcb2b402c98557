"""Acknowledged wire formats against literal bytes from the specifications."""

from __future__ import annotations

import json

import pytest

from polycast.bench.wires.acked_formats import ACKED_WIRES
from polycast.errors import RemoteError

HELLO_SHA1 = b"aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"
HERMOD = b'{"topic": "topic0007", "payload_size": 5, "checksum": "%b"}hello' % HELLO_SHA1
JETSTREAM = b"PUB topic0007 _INBOX.3 5\r\nhello\r\n"
ATOMIC_HEAD = b"NATS/1.0\r\nNats-Batch-Id: 3\r\nNats-Batch-Sequence: %d\r\n%b\r\n"


def publish(wire: str, batch: int) -> bytes:
    return ACKED_WIRES[wire].publish(3, "topic0007", b"hello", batch)


def test_hermod() -> None:
    assert publish("hermod", 1) == HERMOD
    assert publish("hermod", 2) == b'{"batch_type": "Count", "count": 2}' + HERMOD + HERMOD
    wire = ACKED_WIRES["hermod"]
    assert wire.ack_counter(1).take(b'{"status": "OK"}\n') == wire.acks(1) == 1
    assert wire.ack_counter(2).take(b'{"status": "OK", "count": 2}\n') == wire.acks(2) == 1


def test_jetstream() -> None:
    wire = ACKED_WIRES["jetstream"]
    assert publish("jetstream", 2) == JETSTREAM + JETSTREAM
    ack = b'MSG _INBOX.3 1 27\r\n{"stream":"BENCH","seq":12}\r\n'
    assert wire.ack_counter(2).take(ack * 2) == wire.acks(2) == 2


def test_jetstream_atomic() -> None:
    wire = ACKED_WIRES["js-atomic"]
    first, last = ATOMIC_HEAD % (1, b""), ATOMIC_HEAD % (2, b"Nats-Batch-Commit: 1\r\n")
    assert publish("js-atomic", 2) == (
        b"HPUB topic0007 54 59\r\n" + first + b"hello\r\nHPUB topic0007 _INBOX.3 76 81\r\n" + last + b"hello\r\n"
    )
    ack = b'MSG _INBOX.3 1 50\r\n{"stream":"BENCH","seq":2,"batch":"3","count":2}\r\n'
    assert wire.ack_counter(2).take(ack) == wire.acks(2) == 1


def test_a_stream_is_created_for_all_topics() -> None:
    sent = ACKED_WIRES["js-atomic"].prepare(3, ["a", "b"]).sent
    subscribe, create, request, end = sent.split(b"\r\n")
    assert (subscribe, end) == (b"SUB _INBOX.3 1", b"")
    assert create == b"PUB $JS.API.STREAM.CREATE.BENCH _INBOX.3 %d" % len(request)
    assert json.loads(request) == {
        "name": "BENCH",
        "subjects": ["a", "b"],
        "storage": "file",
        "allow_atomic": True,
        "num_replicas": 1,
    }


@pytest.mark.parametrize(
    ("wire", "acks"),
    [
        ("jetstream", [{"stream": "OTHER", "seq": 1}]),
        ("jetstream", [{"stream": "BENCH", "seq": 2}, {"stream": "BENCH", "seq": 2}]),
        ("js-atomic", [{"stream": "BENCH", "seq": 2, "count": 3}]),
    ],
)
def test_invalid_acknowledgements_are_refused(wire: str, acks: list[dict[str, object]]) -> None:
    received = b"".join(b"MSG _INBOX.3 1 9\r\n%b\r\n" % json.dumps(ack).encode() for ack in acks)
    with pytest.raises(RemoteError, match=r"invalid acknowledgements|not of 2 messages"):
        ACKED_WIRES[wire].check(received, 2)
