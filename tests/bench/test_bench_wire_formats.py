"""Wire formats against literal bytes from the specifications."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from polycast.bench.wires import WIRES, Handshake


@dataclass(frozen=True)
class Vector:
    """`sent` on `topic0007`, which is the subscriber's third topic, as message 41 of its topic."""

    wire: str
    subscribe: bytes
    publish: bytes
    delivered: bytes


HELLO_SHA1 = b"aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"

VECTORS = [
    Vector("simplest", b"sub topic0007\n", b"pub topic0007 5 hello\n", b"pub topic0007 5 hello\n"),
    Vector(
        "ubre",
        bytes.fromhex("81 99 37fa213d 4c d8 52 48 55 89 42 4f 5e 98 44 1f 0d d8 55 52 47 93 42 0d 07 ca 16 1f 4a"),
        bytes.fromhex(
            "81 a6 37fa213d 4c d8 51 48 55 96 48 4e 5f d8 1b 1f 43 95 51 54 54 ca 11 0d 00 d8 0d 1f 55 95"
            "45 44 15 c0 03 55 52 96 4d 52 15 87"
        ),
        b'\x81\x26{"publish":"topic0007","body":"hello"}',
    ),
    Vector(
        "hermod",
        b'{"topics": ["topic0007"]}',
        b'{"topic": "topic0007", "payload_size": 5, "checksum": "%b"}hello' % HELLO_SHA1,
        b'{"topic": "topic0007", "sequence": 41, "payload_size": 5, "checksum": "%b"}hello' % HELLO_SHA1,
    ),
    Vector(
        "nanomsg",
        b"",
        b"\x00\x00\x00\x00\x00\x00\x00\x0ftopic0007|hello",
        b"\x00\x00\x00\x00\x00\x00\x00\x0ftopic0007|hello",
    ),
    Vector("fanout", b"subscribe topic0007\n", b"topic0007 hello\n", b"topic0007!hello\n"),
    Vector(
        "nats",
        b"SUB topic0007 3\r\n",
        b"PUB topic0007 5\r\nhello\r\n",
        b"MSG topic0007 3 5\r\nhello\r\n",
    ),
    Vector(
        "resp",
        b"*2\r\n$9\r\nSUBSCRIBE\r\n$9\r\ntopic0007\r\n",
        b"*3\r\n$7\r\nPUBLISH\r\n$9\r\ntopic0007\r\n$5\r\nhello\r\n",
        b"*3\r\n$7\r\nmessage\r\n$9\r\ntopic0007\r\n$5\r\nhello\r\n",
    ),
    Vector(
        "mqtt",
        b"\x82\x0e\x00\x03\x00\x09topic0007\x00",
        b"\x30\x10\x00\x09topic0007hello",
        b"\x30\x10\x00\x09topic0007hello",
    ),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.wire)
def test_wire_bytes(vector: Vector) -> None:
    wire = WIRES[vector.wire]
    assert wire.subscribe("topic0007", 3) == vector.subscribe
    assert wire.publish("topic0007", b"hello") == vector.publish
    assert wire.delivered("topic0007", b"hello", 3, 41) == vector.delivered


def test_every_wire_has_a_vector() -> None:
    assert {vector.wire for vector in VECTORS} == set(WIRES)


@pytest.mark.parametrize(
    ("payload_bytes", "head"),
    [
        (116, b"\x30\x7f"),  # 2 + 9 + 116 = 127: the last length of one byte
        (117, b"\x30\x80\x01"),
        (16384, b"\x30\x8b\x80\x01"),
    ],
)
def test_mqtt_remaining_length(payload_bytes: int, head: bytes) -> None:
    payload = bytes(payload_bytes)
    assert WIRES["mqtt"].publish("topic0007", payload) == head + b"\x00\x09topic0007" + payload


@pytest.mark.parametrize(
    ("payload_bytes", "head"),
    [
        (92, b"\x81\x7d"),  # 33 + 92 = 125: the last size of one byte
        (93, b"\x81\x7e\x00\x7e"),
        (65502, b"\x81\x7e\xff\xff"),
        (65503, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_ubre_frame_size(payload_bytes: int, head: bytes) -> None:
    text = b'{"publish":"topic0007","body":"%b"}' % (b"x" * payload_bytes)
    assert WIRES["ubre"].delivered("topic0007", b"x" * payload_bytes, 1, 0) == head + text
    published = WIRES["ubre"].publish("topic0007", b"x" * payload_bytes)
    assert len(published) == len(head) + 4 + len(text)


def test_hermod_shows_the_sequence_of_each_topic() -> None:
    arrived = (
        b'{"status": "OK"}\n'
        b'{"topic": "a", "sequence": 7, "payload_size": 2, "checksum": ""}xx'
        b'{"topic": "b", "sequence": 12, "payload_size": 2, "checksum": ""}xx'
        b'{"topic": "a", "sequence": 8, "payload_size": 2, "checksum": ""}xx'
    )
    assert WIRES["hermod"].sequences(arrived) == {"a": 7, "b": 12}
    assert WIRES["simplest"].sequences(arrived) == {}


def test_handshakes() -> None:
    assert WIRES["fanout"].subscriber.expected == b"debug!connected...\n"
    assert WIRES["fanout"].publisher == WIRES["hermod"].publisher == WIRES["hermod"].subscriber == Handshake()
    assert WIRES["nanomsg"].publisher.sent == WIRES["nanomsg"].subscriber.expected == b"\x00SP\x00\x00\x20\x00\x00"
    assert WIRES["nanomsg"].subscriber.sent == WIRES["nanomsg"].publisher.expected == b"\x00SP\x00\x00\x21\x00\x00"
    assert WIRES["ubre"].publisher.sent.startswith(b"GET /ubre HTTP/1.1\r\n")
    assert WIRES["simplest"].publisher.sent == b""
    assert WIRES["resp"].subscriber.sent == b""
    assert WIRES["nats"].publisher.sent.endswith(b"}\r\nPING\r\n")
    assert WIRES["nats"].publisher.expected == b"PONG\r\n"
    assert WIRES["mqtt"].subscriber.sent == bytes.fromhex("10 0c 0004 4d515454 04 02 0000 0000")
    assert WIRES["mqtt"].subscriber.expected == bytes.fromhex("20 02 00 00")
