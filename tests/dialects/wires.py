"""What peers write and read, by hand: nothing here imports the code under test."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha1

from kit import hermod, http, nanomsg, ubre, websocket

Message = tuple[bytes, bytes]
Numbered = tuple[bytes, bytes, int]


@dataclass(frozen=True)
class Wire:
    """The other side of one role."""

    handshake: bytes
    """What a peer says first."""
    later: bytes
    """A whole frame that is always welcome."""
    later_events: tuple[tuple[str | bytes, ...], ...]
    publish: Callable[[bytes, bytes], bytes] | None = None
    subscribe: Callable[[bytes], bytes] | None = None
    reply: bytes = b""
    """The reply to each accepted message."""
    line: Callable[[bytes], bytes] | None = None
    """A line that nobody understands."""
    words: tuple[bytes, ...] = ()
    """Frames and parts of frames to make noise of."""
    line_bytes: int = 24
    """A small limit for lines or headers that leaves room for those of `publish` and `subscribe`."""
    name_bytes: Callable[[int], int] = lambda topic_bytes: topic_bytes
    """How long the name of a topic may be, where topics may be so long."""
    topicless: Callable[[bytes, bytes], bytes] | None = None
    """The payload of a message whose topic is too long, under the empty topic; None: it ends the connection."""


def publish_simplest(topic: bytes, payload: bytes) -> bytes:
    return b"pub " + topic + b" " + str(len(payload)).encode() + b" " + payload + b"\n"


def publish_fanout(topic: bytes, payload: bytes) -> bytes:
    return topic + b" " + payload + b"\n"


def end_line(text: bytes) -> bytes:
    return text + b"\n"


SIMPLEST = Wire(
    handshake=b"",
    later=b"pub later 1 z\n",
    later_events=(("message", b"later", b"z"),),
    publish=publish_simplest,
    subscribe=lambda text: b"sub " + text + b"\n",
    line=end_line,
    words=(b"pub ", b"sub ", b"unsub ", b"pub a ", b"pub a 24 "),
)
PEER = replace(SIMPLEST, name_bytes=lambda topic_bytes: len(b"//fwd/") + len(b"%20") * topic_bytes)

HERMOD = Wire(
    handshake=b"",
    later=hermod.message("later", b"z"),
    later_events=(("message", b"later", b"z"), ("reply", hermod.OK)),
    publish=lambda topic, payload: hermod.message(topic.decode(), payload),
    subscribe=lambda topic: hermod.topics(topic.decode()),
    reply=hermod.OK,
    words=hermod.WORDS,
    line_bytes=120,
)

WIRES: dict[str, Wire] = {
    "simplest": SIMPLEST,
    "simplest.peer": PEER,
    "fanout.client": Wire(
        handshake=b"",
        later=b"time\n",
        later_events=(("reply", b"1700000000500\n"),),
        subscribe=lambda channel: b"subscribe " + channel + b"\n",
        line=end_line,
        words=(b"subscribe ", b"time"),
    ),
    "fanout.controller": Wire(
        handshake=b"",
        later=b"later z\n",
        later_events=(("message", b"later", b"z"),),
        publish=publish_fanout,
        line=end_line,
        words=(b"a ",),
    ),
    "http": Wire(
        handshake=http.get("/"),
        later=http.get("/later"),
        later_events=(("refused", b"Not Found"), ("reply", http.NOT_FOUND)),
        words=(*http.WORDS, websocket.upgrade()),
        line_bytes=200,
    ),
    "hermod.pub": HERMOD,
    "hermod.sub": replace(HERMOD, handshake=hermod.topics("f")),
    "ubre": Wire(
        handshake=b"",
        later=ubre.line(publish="later", body="z"),
        later_events=(("message", b"later", b"z", b"text"),),
        publish=lambda topic, payload: ubre.frame("P", topic, payload),
        subscribe=lambda topic: ubre.line(subscribe=topic.decode()),
        words=ubre.WORDS,
    ),
    "nanomsg.pub": Wire(handshake=nanomsg.SUB, later=b"", later_events=(), words=nanomsg.WORDS),
    "nanomsg.sub": Wire(
        handshake=nanomsg.PUB,
        later=nanomsg.message(b"later|z"),
        later_events=(("message", b"later", b"z"),),
        publish=lambda topic, payload: nanomsg.message(topic + b"|" + payload),
        words=nanomsg.WORDS,
        topicless=lambda topic, payload: topic + b"|" + payload,
    ),
}

PUBLISHERS = [role for role, wire in WIRES.items() if wire.publish]
SUBSCRIBERS = [role for role, wire in WIRES.items() if wire.subscribe]


# -- what a subscriber reads -----------------------------------------------------------------------------


def read_simplest(data: bytes) -> list[Message]:
    found: list[Message] = []
    while data:
        head = re.match(rb"pub ([^ \r\n]+) (0|[1-9][0-9]*) ", data)
        assert head, f"no pub: {data[:40]!r}"
        end = head.end() + int(head[2])
        assert data[end : end + 1] == b"\n", f"the length does not fit: {data[:40]!r}"
        found.append((head[1], data[head.end() : end]))
        data = data[end + 1 :]
    return found


def read_fanout(data: bytes) -> list[Message]:
    lines = data.split(b"\n")
    assert lines.pop() == b"", "the last line does not end"
    found: list[Message] = []
    for line in lines:
        channel, mark, message = line.partition(b"!")
        assert mark and channel and b" " not in channel and b"\r" not in channel, f"no message: {line!r}"
        found.append((channel, message))
    return found


def read_hermod(data: bytes) -> list[Message]:
    """Headers end where their JSON does; every byte is taken for a character to find out where that is."""
    found: list[Message] = []
    while data:
        _, end = json.JSONDecoder().raw_decode(data.decode("latin-1"))
        header = json.loads(data[:end])
        payload = data[end : end + header["payload_size"]]
        assert list(header) == ["topic", "sequence", "payload_size", "checksum"]
        assert sha1(payload).hexdigest() == header["checksum"]
        found.append((header["topic"].encode(), payload))
        data = data[end + len(payload) :]
    return found


def read_nanomsg(data: bytes) -> list[Message]:
    found: list[Message] = []
    while data:
        end = 8 + int.from_bytes(data[:8], "big")
        assert len(data) >= end, f"the size does not fit: {data[:40]!r}"
        topic, separator, payload = data[8:end].partition(b"|")
        found.append((topic, payload) if separator else (b"", topic))
        data = data[end:]
    return found


READERS: dict[str, Callable[[bytes], list[Message]]] = {
    "simplest": read_simplest,
    "fanout": read_fanout,
    "hermod": read_hermod,
    "nanomsg": read_nanomsg,
    "ubre": ubre.read_lines,
}


# -- what a message looks like there ---------------------------------------------------------------------


def seen_in_simplest(topic: bytes, payload: bytes) -> Message:
    return topic.replace(b" ", b"%20").replace(b"\r", b"%0D").replace(b"\n", b"%0A"), payload


def seen_in_fanout(topic: bytes, payload: bytes) -> Message:
    name, _ = seen_in_simplest(topic, b"")
    return name.replace(b"!", b"%21"), payload.replace(b"\n", b"\\n")


def seen_as_it_is(topic: bytes, payload: bytes) -> Message:
    return topic, payload


SEEN: dict[str, Callable[[bytes, bytes], Message]] = {
    "simplest": seen_in_simplest,
    "fanout": seen_in_fanout,
    "hermod": seen_as_it_is,
    "nanomsg": seen_as_it_is,
    "ubre": seen_as_it_is,
}


# -- and what is written for it --------------------------------------------------------------------------


def numbered(messages: Iterable[Message]) -> list[Numbered]:
    """With the sequence of each in its topic, from 0 on."""
    seen: Counter[bytes] = Counter()
    found: list[Numbered] = []
    for topic, payload in messages:
        found.append((topic, payload, seen[topic]))
        seen[topic] += 1
    return found


def deliver_simplest(topic: bytes, payload: bytes, sequence: int) -> bytes:
    return publish_simplest(topic, payload)


def deliver_fanout(topic: bytes, payload: bytes, sequence: int) -> bytes:
    return topic + b"!" + payload + b"\n"


def deliver_hermod(topic: bytes, payload: bytes, sequence: int) -> bytes:
    return hermod.delivery(topic.decode(), payload, sequence)


def deliver_nanomsg(topic: bytes, payload: bytes, sequence: int) -> bytes:
    return nanomsg.message(topic + b"|" + payload if topic else payload)


DELIVERED: dict[str, Callable[[bytes, bytes, int], bytes]] = {
    "simplest": deliver_simplest,
    "fanout": deliver_fanout,
    "hermod": deliver_hermod,
    "nanomsg": deliver_nanomsg,
}


def delivered(dialect: str, messages: Iterable[Numbered]) -> bytes:
    """What a subscriber gets for messages with these topics and payloads."""
    parts = []
    for topic, payload, sequence in messages:
        parts.append(DELIVERED[dialect](*SEEN[dialect](topic, payload), sequence))
    return b"".join(parts)
