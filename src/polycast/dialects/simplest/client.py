"""The client's side of `simplest`. It reads with the same session as the broker."""

from __future__ import annotations

from polycast.address import Address
from polycast.dialects.client_session import SHOWN_BYTES, ClientSession, Command, Credentials, PendingAcks, utf8
from polycast.dialects.session import SessionContext
from polycast.dialects.simplest.session import NAME, SimplestSession, to_name
from polycast.errors import ProtocolError, UsageError
from polycast.model import Limits, Message, Pattern, Refused

LIMITS = Limits(payload_bytes=2**31, topic_bytes=2**16, line_bytes=2**20)


class SimplestClientSession(ClientSession):
    dialect = NAME
    one_way = False

    def __init__(self, address: Address, publishing: bool, credentials: Credentials) -> None:
        super().__init__(address, publishing, credentials)
        self._session = SimplestSession(SessionContext(LIMITS))

    def encode(self, message: Message) -> bytes:
        name = utf8(message.topic)
        if not name or name != to_name(message.topic):
            raise UsageError(f"simplest cannot carry the topic {message.topic!r}: it is empty or has white space")
        return b"pub %b %d %b\n" % (name, len(message.payload), message.payload)

    def check_pattern(self, pattern: Pattern) -> None:
        if "\n" in pattern.value:
            raise UsageError(f"simplest cannot subscribe to {str(pattern)!r}: it has a line break")

    def to_subscribe(self, patterns: list[Pattern]) -> Command:
        return Command(b"".join(b"sub %b\n" % utf8(pattern.value) for pattern in patterns), PendingAcks())

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        return pattern.matches(topic) or type(pattern)(to_name(pattern.value).decode()).matches(topic)

    def read(self, block: bytes) -> tuple[int, int]:
        """Unknown lines are skipped, except for the first: then the broker speaks another dialect."""
        received = self._session.receive(block, 0.0)
        for event in received.events:
            if not self.recognized and isinstance(event, Refused):
                raise ProtocolError(f"{block[:SHOWN_BYTES]!r} is not simplest")
            self.recognized = True
            self.handle(event)
        return received.consumed, received.frame_bytes
