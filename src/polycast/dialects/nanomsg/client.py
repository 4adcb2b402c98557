"""The client's side of `nanomsg`: a PUB socket at the broker's SUB, or a SUB socket at the broker's PUB.

The broker sends every message; the client filters, as SUB sockets do.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

from polycast.address import INSIDE_TLS, Address
from polycast.dialects.client_session import ClientSession, Command, Credentials, PendingAcks, utf8
from polycast.dialects.nanomsg.encoders import HEADS, NAME
from polycast.dialects.nanomsg.session import DialedPubSession, DialedSubSession, PubSession, SubSession
from polycast.dialects.nanomsg.settings import NanomsgSettings
from polycast.dialects.session import Session, SessionContext
from polycast.dialects.web.client import WebSocketClient, to_close_frame, to_refusal
from polycast.dialects.web.websocket import BINARY, to_masked_frame
from polycast.errors import UsageError
from polycast.model import RESERVED_PREFIX, Everything, Limits, Message, Pattern, Reply

SEPARATOR = b"|"
LIMITS = Limits(payload_bytes=2**31, topic_bytes=2**16)
SETTINGS = NanomsgSettings(message_bytes=2**31)


class PubWebSocketClient(WebSocketClient, DialedPubSession):
    pass


class SubWebSocketClient(WebSocketClient, DialedSubSession):
    pass


class NanomsgClientSession(ClientSession):
    dialect = NAME

    def __init__(self, address: Address, publishing: bool, credentials: Credentials) -> None:
        super().__init__(address, publishing, credentials)
        token = self.credentials.token
        path = f"{address.path or '/'}?{urlencode({'token': token})}" if token else address.path
        self._scheme = INSIDE_TLS.get(address.scheme, address.scheme)
        context = SessionContext(LIMITS, self._scheme, tables={NAME: SETTINGS}, dialed=replace(address, path=path))
        kinds = (PubWebSocketClient, SubWebSocketClient) if self._scheme == "ws" else (PubSession, SubSession)
        self._session: Session = kinds[0](context) if publishing else kinds[1](context)

    def open(self) -> Command:
        replies = (event.data for event in self._session.open() if isinstance(event, Reply))
        return Command(b"".join(replies), self.expect_ack(PendingAcks()))

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
            raise UsageError(
                f"nanomsg cannot subscribe to topics under {RESERVED_PREFIX}", "hermod, ubre and simplest can"
            )

    def to_subscribe(self, patterns: list[Pattern]) -> Command:
        return Command(b"", PendingAcks())

    def read(self, block: bytes) -> tuple[int, int]:
        received = self._session.receive(block, 0.0)
        if self._session.handshake_done:
            self.handle_ack()
        for event in received.events:
            self.handle(event)
        if isinstance(self._session, WebSocketClient):
            self.refusal = self.refusal or to_refusal(self._session.close_payload, self.address)
        return received.consumed, received.frame_bytes

    def closing_bytes(self) -> bytes:
        return to_close_frame() if self._scheme == "ws" else b""


def _topic_of(body: bytes) -> bytes:
    topic, separator, _ = body.partition(SEPARATOR)
    return topic if separator else b""
