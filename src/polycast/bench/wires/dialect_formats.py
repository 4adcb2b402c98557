r"""The wire formats of Polycast's dialects, written from the specifications, not from the code under test.

simplest  pub NAME LENGTH DATA\n                  ->  the same
ubre      masked text frame {"publish":"NAME","body":"DATA"}, as a WebSocket client sends it
                                                  ->  the same, not masked
hermod    {"topic": "NAME", "payload_size": LENGTH, "checksum": "SHA1"}DATA
                                                  ->  the same with "sequence": N after the topic
nanomsg   U64 NAME|DATA  (SP over TCP)            ->  the same
fanout    NAME DATA\n                             ->  NAME!DATA\n
"""

from __future__ import annotations

import re
import struct
from hashlib import sha1

from polycast.bench.wires.wire_format import Handshake, WireFormat


class Simplest(WireFormat):
    listeners = ("simplest", "simplest")

    def subscribe(self, topic: str, number: int) -> bytes:
        return b"sub %b\n" % topic.encode()

    def publish(self, topic: str, payload: bytes) -> bytes:
        return b"pub %b %d %b\n" % (topic.encode(), len(payload), payload)


UPGRADE = (
    b"GET /ubre HTTP/1.1\r\n"
    b"Host: 127.0.0.1\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)
FIN_TEXT = 0x81
MASKED = 0x80
SHORT_LIMIT, MEDIUM_LIMIT = 125, 0xFFFF
MASK = bytes.fromhex("37fa213d")  # not zero: the server must do the work of unmasking


class Ubre(WireFormat):
    """JSON over a WebSocket. Payloads must be text without anything that JSON escapes."""

    listeners = ("http", "http")
    publisher = subscriber = Handshake(UPGRADE, b"\r\n\r\n")

    def subscribe(self, topic: str, number: int) -> bytes:
        return _masked_text(b'{"subscribe":"%b"}' % topic.encode())

    def publish(self, topic: str, payload: bytes) -> bytes:
        return _masked_text(b'{"publish":"%b","body":"%b"}' % (topic.encode(), payload))

    def delivered(self, topic: str, payload: bytes, number: int, sequence: int) -> bytes:
        text = b'{"publish":"%b","body":"%b"}' % (topic.encode(), payload)
        return _text_head(len(text), 0) + text


def _text_head(size: int, masked: int) -> bytes:
    if size <= SHORT_LIMIT:
        return struct.pack("!BB", FIN_TEXT, masked | size)
    if size <= MEDIUM_LIMIT:
        return struct.pack("!BBH", FIN_TEXT, masked | 126, size)
    return struct.pack("!BBQ", FIN_TEXT, masked | 127, size)


def _masked_text(text: bytes) -> bytes:
    masked = bytes(byte ^ MASK[at % len(MASK)] for at, byte in enumerate(text))
    return _text_head(len(text), MASKED) + MASK + masked


class Hermod(WireFormat):
    """Single messages with checksums, each acknowledged; the driver discards the acknowledgements."""

    listeners = ("hermod.pub", "hermod.sub")
    numbered = True

    def subscribe(self, topic: str, number: int) -> bytes:
        return b'{"topics": ["%b"]}' % topic.encode()

    def publish(self, topic: str, payload: bytes) -> bytes:
        head = b'{"topic": "%b", "payload_size": %d, "checksum": "%b"}'
        return head % (topic.encode(), len(payload), _checksum(payload)) + payload

    def delivered(self, topic: str, payload: bytes, number: int, sequence: int) -> bytes:
        head = b'{"topic": "%b", "sequence": %d, "payload_size": %d, "checksum": "%b"}'
        return head % (topic.encode(), sequence, len(payload), _checksum(payload)) + payload

    def sequences(self, arrived: bytes) -> dict[str, int]:
        found = re.findall(rb'{"topic": "([^"]*)", "sequence": (\d+),', arrived)
        return {topic.decode(): int(sequence) for topic, sequence in reversed(found)}


def _checksum(payload: bytes) -> bytes:
    return sha1(payload, usedforsecurity=False).hexdigest().encode()


PUB_HEADER = bytes.fromhex("0053500000200000")
SUB_HEADER = bytes.fromhex("0053500000210000")


class Nanomsg(WireFormat):
    """A SUB receives every message and filters by itself."""

    listeners = ("nanomsg.sub", "nanomsg.pub")
    publisher = Handshake(PUB_HEADER, SUB_HEADER)
    subscriber = Handshake(SUB_HEADER, PUB_HEADER)
    filters = False

    def subscribe(self, topic: str, number: int) -> bytes:
        return b""

    def publish(self, topic: str, payload: bytes) -> bytes:
        body = b"%b|%b" % (topic.encode(), payload)
        return struct.pack("!Q", len(body)) + body


class Fanout(WireFormat):
    listeners = ("fanout.controller", "fanout.client")
    subscriber = Handshake(expected=b"debug!connected...\n")

    def subscribe(self, topic: str, number: int) -> bytes:
        return b"subscribe %b\n" % topic.encode()

    def publish(self, topic: str, payload: bytes) -> bytes:
        return b"%b %b\n" % (topic.encode(), payload)

    def delivered(self, topic: str, payload: bytes, number: int, sequence: int) -> bytes:
        return b"%b!%b\n" % (topic.encode(), payload)
