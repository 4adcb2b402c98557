"""The client's side of `nanomsg`: a PUB socket at the broker's SUB, or a SUB socket at the broker's PUB.

What it hears is everything; what was not asked for is left out here, as SUB sockets do.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

from polycast.address import UNDER, Address
from polycast.client.side import Receipt, Said, Side, utf8
from polycast.client.websocket import Attentive, to_farewell, to_refusal
from polycast.dialects.base import Session, SessionContext
from polycast.dialects.nanomsg.encoders import HEADS, NAME
from polycast.dialects.nanomsg.sessions import (
    DialedPubSession,
    DialedSubSession,
    NanomsgSettings,
    PubSession,
    SubSession,
)
from polycast.dialects.web.websocket import BINARY, to_masked_frame
from polycast.errors import UsageError
from polycast.model import RESERVED_PREFIX, Everything, Limits, Message, Pattern, Reply

SEPARATOR = b"|"
LIMITS = Limits(payload_bytes=2**31, topic_bytes=2**16)
SETTINGS = NanomsgSettings(message_bytes=2**31)


class AttentivePub(Attentive, DialedPubSession):
    pass


class AttentiveSub(Attentive, DialedSubSession):
    pass


class NanomsgSide(Side):
    dialect = NAME

    def __init__(self, address: Address, publishing: bool) -> None:
        super().__init__(address, publishing)
        token = self.credentials.token
        path = f"{address.path or '/'}?{urlencode({'token': token})}" if token else address.path
        self._scheme = UNDER.get(address.scheme, address.scheme)
        context = SessionContext(LIMITS, self._scheme, tables={NAME: SETTINGS}, dialed=replace(address, path=path))
        kinds = (AttentivePub, AttentiveSub) if self._scheme == "ws" else (PubSession, SubSession)
        self._session: Session = kinds[0](context) if publishing else kinds[1](context)

    def open(self) -> Said:
        words = (event.data for event in self._session.open() if isinstance(event, Reply))
        return Said(b"".join(words), self.owe(Receipt()))

    def encode(self, message: Message) -> bytes:
        topic = utf8(message.topic)
        body = topic + SEPARATOR + message.payload if topic else message.payload
        if len(topic) > Limits().topic_bytes or _topic_of(body) != topic:
            problem = "it is too long, or has '|' in it, or is empty while the message has"
            raise UsageError(f"nanomsg cannot carry the topic {message.topic!r}: {problem}")
        if self._scheme == "ws":
            return to_masked_frame(BINARY, body)
        return HEADS[self._scheme](len(body)) + body

    def check_pattern(self, pattern: Pattern) -> None:
        if not isinstance(pattern, Everything) and pattern.value.startswith(RESERVED_PREFIX):
            raise UsageError(f"nanomsg never hears topics under {RESERVED_PREFIX}", "hermod, ubre and simplest do")

    def to_asks(self, patterns: list[Pattern]) -> Said:
        return Said(b"", Receipt())

    def read(self, block: bytes) -> tuple[int, int]:
        received = self._session.receive(block, 0.0)
        if self._session.handshake_done:
            self.settle()
        for event in received.events:
            self.handle(event)
        if isinstance(self._session, Attentive):
            self.goodbye = self.goodbye or to_refusal(self._session.goodbye, self.address)
        return received.consumed, received.need

    def closing_bytes(self) -> bytes:
        return to_farewell() if self._scheme == "ws" else b""


def _topic_of(body: bytes) -> bytes:
    topic, separator, _ = body.partition(SEPARATOR)
    return topic if separator else b""
