"""The client's side of `simplest`. What it hears is read by the same session that the broker reads with."""

from __future__ import annotations

from polycast.address import Address
from polycast.client.side import SHOWN_BYTES, Receipt, Said, Side, utf8
from polycast.dialects.base import SessionContext
from polycast.dialects.simplest import NAME, SimplestSession, to_name
from polycast.errors import ProtocolError, UsageError
from polycast.model import Limits, Message, Pattern, Refused

LIMITS = Limits(payload_bytes=2**31, topic_bytes=2**16, line_bytes=2**20)


class SimplestSide(Side):
    dialect = NAME
    one_way = False

    def __init__(self, address: Address, publishing: bool) -> None:
        super().__init__(address, publishing)
        self._session = SimplestSession(SessionContext(LIMITS))

    def encode(self, message: Message) -> bytes:
        name = utf8(message.topic)
        if not name or name != to_name(message.topic):
            raise UsageError(f"simplest cannot carry the topic {message.topic!r}: it is empty or has white space")
        return b"pub %b %d %b\n" % (name, len(message.payload), message.payload)

    def check_pattern(self, pattern: Pattern) -> None:
        if "\n" in pattern.value:
            raise UsageError(f"simplest cannot ask for {str(pattern)!r}: it has a line break")

    def to_asks(self, patterns: list[Pattern]) -> Said:
        return Said(b"".join(b"sub %b\n" % utf8(pattern.value) for pattern in patterns), Receipt())

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        return pattern.matches(topic) or _escaped(pattern).matches(topic)

    def read(self, block: bytes) -> tuple[int, int]:
        """Unknown lines are passed over, but whoever begins with one speaks something else."""
        received = self._session.receive(block, 0.0)
        for event in received.events:
            if not self.heard and isinstance(event, Refused):
                raise ProtocolError(f"{block[:SHOWN_BYTES]!r} is not simplest")
            self.heard = True
            self.handle(event)
        return received.consumed, received.need


def _escaped(pattern: Pattern) -> Pattern:
    """The pattern for a topic as it looks in this dialect."""
    return type(pattern)(to_name(pattern.value).decode())
