"""Every wire against literal bytes, written down by hand from the protocols' own documents."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from polycast.bench.wires import WIRES


@dataclass(frozen=True)
class Vector:
    wire: str
    subscribe: bytes
    publish: bytes
    delivered: bytes


VECTORS = [
    Vector("simplest", b"sub topic0007\n", b"pub topic0007 5 hello\n", b"pub topic0007 5 hello\n"),
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
    assert wire.delivered("topic0007", b"hello", 3) == vector.delivered


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


def test_greetings() -> None:
    assert WIRES["simplest"].publisher.hello == b""
    assert WIRES["resp"].subscriber.hello == b""
    assert WIRES["nats"].publisher.hello.endswith(b"}\r\nPING\r\n")
    assert WIRES["nats"].publisher.welcome == b"PONG\r\n"
    assert WIRES["mqtt"].subscriber.hello == bytes.fromhex("10 0c 0004 4d515454 04 02 0000 0000")
    assert WIRES["mqtt"].subscriber.welcome == bytes.fromhex("20 02 00 00")
