"""How each dialect writes and reads a message; written by hand, over plain sockets.

`encode` returns None for a topic or a payload that a dialect cannot write. `to_message` returns the message that
the broker makes of the written bytes, which may differ.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from kit.room import Room
from kit.wire import GUARD_SECONDS, Peer, wait_for

LIMIT_BYTES = 65_536
SP_PUB, SP_SUB = b"\x00SP\x00\x00\x20\x00\x00", b"\x00SP\x00\x00\x21\x00\x00"


@dataclass(frozen=True)
class ModelMessage:
    """A message as the model has it: topic, payload, and its format where that is not `bytes`."""

    topic: str
    payload: bytes
    format: str = "bytes"


def _is_text(payload: bytes) -> bool:
    return payload.decode(errors="replace").encode() == payload


# -- speaking --------------------------------------------------------------------------------------------


def encode_simplest(topic: str, payload: bytes) -> bytes | None:
    if not topic or any(c in topic for c in " \r\n"):
        return None
    return b"pub %b %d %b\n" % (topic.encode(), len(payload), payload)


def encode_fanout(topic: str, payload: bytes) -> bytes | None:
    encodable = topic and not any(c in topic for c in " \r\n!") and b"\n" not in payload
    return topic.encode() + b" " + payload + b"\n" if encodable and not payload.endswith(b"\r") else None


def encode_hermod(topic: str, payload: bytes) -> bytes | None:
    header = {"topic": topic, "payload_size": len(payload), "checksum": sha1(payload).hexdigest()}
    return json.dumps(header).encode() + payload


def encode_nanomsg(topic: str, payload: bytes) -> bytes | None:
    body = topic.encode() + b"|" + payload if topic else payload
    return struct.pack("!Q", len(body)) + body


def encode_ubre_json(topic: str, payload: bytes) -> bytes | None:
    """A JSON value that is no string as it stands, any other text as a string."""
    if not _is_text(payload):
        return None
    body = payload if _is_value(payload) else json.dumps(payload.decode()).encode()
    rest = b',"body":' + body if payload else b""
    return b'{"publish":%b%b}\n' % (json.dumps(topic).encode(), rest)


def _is_value(payload: bytes) -> bool:
    try:
        return not isinstance(to_value(payload), str) and not any(c in payload for c in b" \t\r\n")
    except ValueError:
        return False


def to_value(text: bytes) -> Any:
    """Strict JSON, with numbers as they are written."""
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_refuse)


def _number(text: str) -> tuple[str, str]:
    return "number", text


def _refuse(text: str) -> None:
    raise ValueError(text)


def encode_ubre_binary(topic: str, payload: bytes) -> bytes | None:
    name = topic.encode()
    return struct.pack("!BHI", ord("P"), len(name), len(payload)) + name + payload


# -- what was message --------------------------------------------------------------------------------------


def message_unchanged(topic: str, payload: bytes) -> ModelMessage:
    return ModelMessage(topic, payload)


def message_of_nanomsg(topic: str, payload: bytes) -> ModelMessage:
    """The first bar divides, and there must be something before it."""
    body = topic.encode() + b"|" + payload if topic else payload
    name, bar, rest = body.partition(b"|")
    fits = bar and name and len(name) <= 1024 and _is_text(name)
    return ModelMessage(name.decode(), rest) if fits else ModelMessage("", body)


def message_of_ubre_json(topic: str, payload: bytes) -> ModelMessage:
    if not payload:
        return ModelMessage(topic, b"", "none")
    return ModelMessage(topic, payload, "json" if _is_value(payload) else "text")


def message_of_ubre_binary(topic: str, payload: bytes) -> ModelMessage:
    return ModelMessage(topic, payload, "bytes" if payload else "none")


# -- reading ---------------------------------------------------------------------------------------------

Arrived = tuple[str, Any]
"""The topic, and the payload as this dialect shows it: bytes, or a JSON value, or nothing."""


def read_simplest(peer: Peer) -> Arrived:
    command, name, size = peer.read_until(b" "), peer.read_until(b" "), peer.read_until(b" ")
    assert command == b"pub "
    return name[:-1].decode(), _take(peer, int(size) + 1).removesuffix(b"\n")


def read_fanout(peer: Peer) -> Arrived:
    channel, payload = peer.read_until(b"!"), peer.read_until(b"\n")
    return channel[:-1].decode(), payload[:-1]


def read_hermod(peer: Peer) -> Arrived:
    text = peer.read_until(b"}")
    while not _is_json(text):
        text += peer.read_until(b"}")
    header = json.loads(text)
    payload = _take(peer, header["payload_size"])
    assert header["checksum"] == sha1(payload).hexdigest()
    assert isinstance(header["sequence"], int)
    return header["topic"], payload


def read_nanomsg(peer: Peer) -> Arrived:
    """A reader who splits as a writer joins."""
    body = _take(peer, struct.unpack("!Q", _take(peer, 8))[0])
    topic, bar, payload = body.partition(b"|")
    return (topic.decode(), payload) if bar and _is_text(topic) else ("", body)


def read_ubre_json(peer: Peer) -> Arrived:
    line = peer.read_until(b"\n")
    assert line.startswith(b"{")
    message = to_value(line)
    return message["publish"], message.get("body", NOTHING)


def read_ubre_binary(peer: Peer) -> Arrived:
    kind, name, body = struct.unpack("!BHI", _take(peer, 7))
    assert kind == ord("P")
    return _take(peer, name).decode(), _take(peer, body)


class Nothing:
    def __repr__(self) -> str:
        return "no body"


NOTHING = Nothing()


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _take(peer: Peer, size: int) -> bytes:
    while len(peer.read) < size:
        more = peer.socket.recv(LIMIT_BYTES)
        assert more, "closed"
        peer.read += more
    taken, peer.read = peer.read[:size], peer.read[size:]
    return taken


# -- expected -----------------------------------------------------------------------------------------------


def _escape(topic: str, marks: dict[str, str]) -> str:
    return "".join(marks.get(character, character) for character in topic)


SPACES = {" ": "%20", "\r": "%0D", "\n": "%0A"}


def expected_in_simplest(m: ModelMessage) -> Arrived:
    return _escape(m.topic, SPACES) or "%", m.payload


def expected_in_fanout(m: ModelMessage) -> Arrived:
    return _escape(m.topic, {**SPACES, "!": "%21"}), m.payload.replace(b"\n", b"\\n")


def expected_unchanged(m: ModelMessage) -> Arrived:
    return m.topic, m.payload


def expected_in_nanomsg(m: ModelMessage) -> Arrived:
    """A topic with a bar in it is split elsewhere by whoever reads it."""
    body = m.topic.encode() + b"|" + m.payload if m.topic else m.payload
    topic, bar, payload = body.partition(b"|")
    return (topic.decode(), payload) if bar and _is_text(topic) else ("", body)


def expected_in_ubre_json(m: ModelMessage) -> Arrived:
    if m.format == "none":
        return m.topic, NOTHING
    if m.format == "json":
        return m.topic, to_value(m.payload)
    if _is_text(m.payload):
        return m.topic, m.payload.decode()
    return m.topic, {"$base64": base64.b64encode(m.payload).decode()}


# -- connecting ------------------------------------------------------------------------------------------


def publish_plainly(listener: str) -> Callable[[Room], Peer]:
    return lambda room: room.connect(listener)


def publish_nanomsg(room: Room) -> Peer:
    peer = room.connect("nanomsg.sub")
    peer.send(SP_PUB)
    peer.expect(SP_SUB)
    return peer


def subscribe_simplest(room: Room, topic: str) -> Peer:
    return room.simplest(b"sub \n")


def subscribe_fanout(room: Room, topic: str) -> Peer:
    return room.client(b"subscribe >\n")


def subscribe_hermod(room: Room, topic: str) -> Peer:
    peer = room.connect("hermod.sub")
    peer.send(json.dumps({"topics": [topic]}).encode())
    assert json.loads(peer.read_until(b"\n")) == {"status": "OK"}
    return peer


def subscribe_nanomsg(room: Room, topic: str) -> Peer:
    peer = room.connect("nanomsg.pub")
    peer.send(SP_SUB)
    peer.expect(SP_PUB)
    wait_for(lambda: _probe(room, peer), "the subscription of a SUB socket")
    return peer


def _probe(room: Room, peer: Peer) -> bool:
    """Nothing confirms a subscription of a SUB socket; it is in force when a message arrives."""
    room.simplest(b"pub probe 0 \n")
    peer.socket.setblocking(False)
    try:
        peer.read += peer.socket.recv(LIMIT_BYTES)
    except BlockingIOError:
        return False
    finally:
        peer.socket.settimeout(GUARD_SECONDS)
    room.simplest(b"pub probe 4 last\n")
    peer.read_until(b"probe|last")
    return True


def _fence_ubre(peer: Peer) -> None:
    peer.send(b'{"request":"nobody/answers/this","id":1}\n')
    assert json.loads(peer.read_until(b"\n"))["fail"] == 1


def subscribe_ubre_json(room: Room, topic: str) -> Peer:
    peer = room.connect("ubre")
    peer.send(json.dumps({"subscribe": topic}).encode() + b"\n")
    _fence_ubre(peer)
    return peer


def subscribe_ubre_binary(room: Room, topic: str) -> Peer:
    peer = room.connect("ubre")
    name = topic.encode()
    peer.send(struct.pack("!BHI", ord("S"), len(name), 0) + name)
    _fence_ubre(peer)
    return peer


@dataclass(frozen=True)
class DialectCase:
    dialect: str
    publish: Callable[[Room], Peer]
    encode: Callable[[str, bytes], bytes | None]
    to_message: Callable[[str, bytes], ModelMessage]
    subscribe: Callable[[Room, str], Peer]
    """A subscriber to this topic, its subscription in force."""
    read: Callable[[Peer], Arrived]
    expected: Callable[[ModelMessage], Arrived]


CASES: dict[str, DialectCase] = {
    case.dialect: case
    for case in (
        DialectCase(
            "nanomsg",
            publish_nanomsg,
            encode_nanomsg,
            message_of_nanomsg,
            subscribe_nanomsg,
            read_nanomsg,
            expected_in_nanomsg,
        ),
        DialectCase(
            "simplest",
            publish_plainly("simplest"),
            encode_simplest,
            message_unchanged,
            subscribe_simplest,
            read_simplest,
            expected_in_simplest,
        ),
        DialectCase(
            "fanout",
            publish_plainly("fanout.controller"),
            encode_fanout,
            message_unchanged,
            subscribe_fanout,
            read_fanout,
            expected_in_fanout,
        ),
        DialectCase(
            "hermod",
            publish_plainly("hermod.pub"),
            encode_hermod,
            message_unchanged,
            subscribe_hermod,
            read_hermod,
            expected_unchanged,
        ),
        DialectCase(
            "ubre JSON",
            publish_plainly("ubre"),
            encode_ubre_json,
            message_of_ubre_json,
            subscribe_ubre_json,
            read_ubre_json,
            expected_in_ubre_json,
        ),
        DialectCase(
            "ubre binary",
            publish_plainly("ubre"),
            encode_ubre_binary,
            message_of_ubre_binary,
            subscribe_ubre_binary,
            read_ubre_binary,
            expected_unchanged,
        ),
    )
}
"""SUB sockets of nanomsg come first: earlier subscribers would receive the messages that confirm them."""
