"""A client for the dialect `simplest`. What it gets is read by the same session that the broker reads with."""

from __future__ import annotations

from polycast.client.base import Client
from polycast.dialects.base import Terms
from polycast.dialects.simplest import SimplestSession, to_name
from polycast.errors import UsageError
from polycast.model import Burst, Closing, Limits, Message, Pattern

LIMITS = Limits(payload_bytes=2**31, topic_bytes=2**16, line_bytes=2**20)


class SimplestClient(Client):
    def encode(self, message: Message) -> bytes:
        name = message.topic.encode()
        if not name or name != to_name(message.topic):
            raise UsageError(f"simplest cannot carry the topic {message.topic!r}: it is empty or has white space")
        return b"pub %b %d %b\n" % (name, len(message.payload), message.payload)

    def ask(self, pattern: Pattern) -> bytes:
        if "\n" in pattern.value:
            raise UsageError(f"simplest cannot ask for {str(pattern)!r}: it has a line break")
        return b"sub %b\n" % pattern.value.encode()

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        return pattern.matches(topic) or _escaped(pattern).matches(topic)

    def decode(self, data: bytes) -> tuple[list[Message], bytes]:
        received = SimplestSession(Terms(LIMITS)).receive(data, 0.0)
        messages: list[Message] = []
        for event in received.events:
            if isinstance(event, Burst):
                messages += event.messages()
            elif isinstance(event, Closing) and event.error:
                raise event.error
        return messages, data[received.consumed :]


def _escaped(pattern: Pattern) -> Pattern:
    """The pattern for a topic as it looks in this dialect."""
    return type(pattern)(to_name(pattern.value).decode())
