"""A subscriber of `hermod` with a broker around it that has no sockets, and what it is sent."""

from __future__ import annotations

import json
from collections import Counter

from dialects.feed import NOW
from kit import hermod
from polycast.dialects.hermod.session import HermodSession
from polycast.dialects.session import SessionContext
from polycast.model import Ack, Burst, DeferredReply, Encoder, Format, Reply, Subscribe

Place = tuple[str, int]
"""Topic and sequence."""


class Subscriber:
    """A session with its subscriptions, and a broker that numbers messages and sends what is due."""

    def __init__(self, handshake: bytes, context: SessionContext | None = None) -> None:
        self.session = HermodSession(context or SessionContext())
        self.encoders: dict[str, Encoder] = {}
        self._next: Counter[str] = Counter()
        self._offset = 0
        self.send(handshake)

    def send(self, data: bytes) -> bytes:
        """What it is sent for that, without the replies to handshakes and publications."""
        sent = []
        for event in self.session.receive(data, NOW).events:
            match event:
                case Subscribe(pattern, encoder):
                    self.encoders[pattern.value] = encoder
                case Burst():
                    sent.append(self.deliver(event))
                case DeferredReply(encode):
                    sent.append(encode())
                case Reply(reply) | Ack(reply):
                    sent.append(reply.replace(hermod.OK, b""))
        return b"".join(sent)

    def publish(self, *messages: tuple[str, bytes]) -> bytes:
        return self.deliver(
            Burst.of("another", [(topic.encode(), payload, Format.BYTES) for topic, payload in messages])
        )

    def deliver(self, burst: Burst) -> bytes:
        burst.offset, burst.micros = self._offset, 1000 * self._offset
        self._offset += len(burst)
        for run, first, last in burst.runs():
            topic = burst.topics[run].decode()
            burst.sequences.append(self._next[topic])
            self._next[topic] += last - first
        sent: list[bytes] = []
        for encoder in dict.fromkeys(self.encoders.values()):
            wanted = [s for s in burst.runs() if self.encoders.get(burst.topics[s[0]].decode()) is encoder]
            if wanted:
                encoded = encoder.encode(burst, [(first, last) for _, first, last in wanted])
                assert encoded.size == sum(map(len, encoded.blocks))
                sent += map(bytes, encoded.blocks)
        return b"".join(sent)


def one(topic: str, sequence: int, payload: bytes = b"x") -> bytes:
    return hermod.delivery(topic, payload, sequence)


def group(*messages: bytes) -> bytes:
    return b'{"batch_type": "Count", "count": %d}' % len(messages) + b"".join(messages)


A, B = ("a", b"x"), ("b", b"x")


def read_groups(data: bytes) -> list[list[Place]]:
    """Each message alone counts as a group of one."""
    groups: list[list[Place]] = []
    due = 0
    while data:
        header, end = json.JSONDecoder().raw_decode(data.decode("latin-1"))
        if "batch_type" in header:
            assert due == 0
            due = header["count"]
            groups.append([])
        elif due:
            due -= 1
            groups[-1].append((header["topic"], header["sequence"]))
        else:
            groups.append([(header["topic"], header["sequence"])])
        data = data[end + header.get("payload_size", 0) :]
    assert due == 0
    return groups
