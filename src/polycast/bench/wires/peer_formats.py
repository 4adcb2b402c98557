r"""The wire formats of other brokers.

nats      PUB NAME LENGTH\r\nDATA\r\n             ->  MSG NAME SID LENGTH\r\nDATA\r\n
resp      *3 $7 PUBLISH $n NAME $n DATA           ->  *3 $7 message $n NAME $n DATA, each followed by \r\n
mqtt      30 VARINT U16 NAME DATA  (3.1.1, QoS 0) ->  the same
"""

from __future__ import annotations

import struct

from polycast.bench.wires.wire_format import Handshake, WireFormat


class Nats(WireFormat):
    """The server sends PING: version 2.15 right after the first PONG, others seconds after CONNECT."""

    publisher = subscriber = Handshake(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n', b"PONG\r\n")
    keepalive = b"PING\r\n"

    def subscribe(self, topic: str, number: int) -> bytes:
        return b"SUB %b %d\r\n" % (topic.encode(), number)

    def publish(self, topic: str, payload: bytes) -> bytes:
        return b"PUB %b %d\r\n%b\r\n" % (topic.encode(), len(payload), payload)

    def delivered(self, topic: str, payload: bytes, number: int, sequence: int) -> bytes:
        return b"MSG %b %d %d\r\n%b\r\n" % (topic.encode(), number, len(payload), payload)


class Resp(WireFormat):
    """Redis, RESP2. The reply to PUBLISH is `:N`, which the driver discards."""

    def subscribe(self, topic: str, number: int) -> bytes:
        return _resp_array(b"SUBSCRIBE", topic.encode())

    def publish(self, topic: str, payload: bytes) -> bytes:
        return _resp_array(b"PUBLISH", topic.encode(), payload)

    def delivered(self, topic: str, payload: bytes, number: int, sequence: int) -> bytes:
        return _resp_array(b"message", topic.encode(), payload)


def _resp_array(*items: bytes) -> bytes:
    strings = b"".join(b"$%d\r\n%b\r\n" % (len(item), item) for item in items)
    return b"*%d\r\n%b" % (len(items), strings)


class Mqtt(WireFormat):
    """MQTT 3.1.1: clean session, no client id, keep-alive 0 (so no pings), QoS 0."""

    publisher = subscriber = Handshake(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", b"\x20\x02\x00\x00")

    def subscribe(self, topic: str, number: int) -> bytes:
        return _mqtt_packet(0x82, struct.pack("!H", number) + _mqtt_text(topic) + b"\x00")

    def publish(self, topic: str, payload: bytes) -> bytes:
        return _mqtt_packet(0x30, _mqtt_text(topic) + payload)


def _mqtt_text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("!H", len(encoded)) + encoded


def _mqtt_packet(kind: int, rest: bytes) -> bytes:
    head = bytearray([kind])
    length = len(rest)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + rest
