"""A client for the dialect `fanout`: as a controller it publishes, as a client it subscribes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from polycast.client.base import Client
from polycast.dialects.fanout import GREETING, to_channel, to_pattern
from polycast.errors import UsageError
from polycast.model import Contains, Exact, Message, Pattern

TIME = re.compile(rb"\n[0-9]+\n")


class FanoutClient(Client):
    _greeted = False

    def subscribe(self, patterns: Iterable[Pattern]) -> None:
        """Returns when the subscriptions are in force: a question asked behind them has been answered."""
        super().subscribe(patterns)
        self._send(b"time\n")
        arrived = b"\n"
        while not TIME.search(arrived) and (data := self._receive()):
            arrived += data
            self._left += data

    def encode(self, message: Message) -> bytes:
        channel = message.topic.encode()
        if not channel or channel != to_channel(message.topic):
            problem = "it is empty, or has white space or '!'"
            raise UsageError(f"fanout cannot carry the topic {message.topic!r}: {problem}")
        if b"\n" in message.payload or message.payload.endswith(b"\r"):
            raise UsageError("fanout cannot carry a message with a line break")
        return b"%b %b\n" % (channel, message.payload)

    def ask(self, pattern: Pattern) -> bytes:
        """A channel where there is one with this meaning, all channels otherwise; `all` comes by itself."""
        text = pattern.value if isinstance(pattern, Exact) else str(pattern)
        native = not isinstance(pattern, Contains) and to_pattern(text) == pattern
        plain = text.encode() == to_channel(text)
        return b"subscribe %b\n" % (text.encode() if native and plain else b">")

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        return pattern.matches(topic) or type(pattern)(to_channel(pattern.value).decode()).matches(topic)

    def decode(self, data: bytes) -> tuple[list[Message], bytes]:
        *lines, left = data.split(b"\n")
        if lines and not self._greeted:
            self._greeted = True
            lines = lines[lines[0] + b"\n" == GREETING :]
        parts = (line.partition(b"!") for line in lines)
        return [Message(channel.decode(), payload) for channel, mark, payload in parts if mark], left
