"""What peers write and read, by hand: nothing here imports the code under test."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

Message = tuple[bytes, bytes]


@dataclass(frozen=True)
class Wire:
    """The other side of one role."""

    handshake: bytes
    """What a peer says first."""
    later: bytes
    """A whole frame that is always welcome."""
    later_event: tuple[str | bytes, ...]
    publish: Callable[[bytes, bytes], bytes] | None = None
    subscribe: Callable[[bytes], bytes] | None = None
    line: Callable[[bytes], bytes] | None = None
    """A line that nobody understands."""
    name_bytes: Callable[[int], int] = lambda topic_bytes: topic_bytes
    """How long the name of a topic may be, where topics may be so long."""


def publish_simplest(topic: bytes, payload: bytes) -> bytes:
    return b"pub " + topic + b" " + str(len(payload)).encode() + b" " + payload + b"\n"


def publish_fanout(topic: bytes, payload: bytes) -> bytes:
    return topic + b" " + payload + b"\n"


def end_line(text: bytes) -> bytes:
    return text + b"\n"


SIMPLEST = Wire(
    handshake=b"",
    later=b"pub later 1 z\n",
    later_event=("message", b"later", b"z"),
    publish=publish_simplest,
    subscribe=lambda text: b"sub " + text + b"\n",
    line=end_line,
)
PEER = replace(SIMPLEST, name_bytes=lambda topic_bytes: len(b"//fwd/") + len(b"%20") * topic_bytes)

WIRES: dict[str, Wire] = {
    "simplest": SIMPLEST,
    "simplest.peer": PEER,
    "fanout.client": Wire(
        handshake=b"",
        later=b"time\n",
        later_event=("reply", b"1700000000500\n"),
        subscribe=lambda channel: b"subscribe " + channel + b"\n",
        line=end_line,
    ),
    "fanout.controller": Wire(
        handshake=b"",
        later=b"later z\n",
        later_event=("message", b"later", b"z"),
        publish=publish_fanout,
        line=end_line,
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


READERS: dict[str, Callable[[bytes], list[Message]]] = {"simplest": read_simplest, "fanout": read_fanout}


# -- what a message looks like there ---------------------------------------------------------------------


def seen_in_simplest(topic: bytes, payload: bytes) -> Message:
    return topic.replace(b" ", b"%20").replace(b"\r", b"%0D").replace(b"\n", b"%0A"), payload


def seen_in_fanout(topic: bytes, payload: bytes) -> Message:
    name, _ = seen_in_simplest(topic, b"")
    return name.replace(b"!", b"%21"), payload.replace(b"\n", b"\\n")


SEEN: dict[str, Callable[[bytes, bytes], Message]] = {"simplest": seen_in_simplest, "fanout": seen_in_fanout}


# -- and what is written for it --------------------------------------------------------------------------


def deliver_fanout(topic: bytes, payload: bytes) -> bytes:
    return topic + b"!" + payload + b"\n"


DELIVERED: dict[str, Callable[[bytes, bytes], bytes]] = {
    "simplest": publish_simplest,
    "fanout": deliver_fanout,
}
