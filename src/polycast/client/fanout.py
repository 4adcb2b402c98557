"""The client's side of `fanout`: as a controller it publishes, as a client it subscribes."""

from __future__ import annotations

from polycast.address import Address
from polycast.client.side import SHOWN_BYTES, Receipt, Said, Side, utf8
from polycast.dialects.fanout import GREETING, NAME, to_channel, to_pattern
from polycast.errors import ProtocolError, UsageError
from polycast.model import Contains, Exact, Message, Pattern


class FanoutSide(Side):
    dialect = NAME

    def __init__(self, address: Address, publishing: bool) -> None:
        super().__init__(address, publishing)
        self._greeted = False

    def open(self) -> Said:
        return Said(b"", Receipt() if self.publishing else self.owe(Receipt()))

    def encode(self, message: Message) -> bytes:
        channel = utf8(message.topic)
        if not channel or channel != to_channel(message.topic):
            problem = "it is empty, or has white space or '!'"
            raise UsageError(f"fanout cannot carry the topic {message.topic!r}: {problem}")
        if b"\n" in message.payload or message.payload.endswith(b"\r"):
            raise UsageError("fanout cannot carry a message with a line break")
        return b"%b %b\n" % (channel, message.payload)

    def to_asks(self, patterns: list[Pattern]) -> Said:
        """With a question behind them: once that is answered, the subscriptions are in force."""
        asks = b"".join(map(_to_subscribe, patterns))
        return Said(asks + b"time\n", self.owe(Receipt()))

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        return pattern.matches(topic) or type(pattern)(to_channel(pattern.value).decode()).matches(topic)

    def read(self, block: bytes) -> tuple[int, int]:
        if self.publishing:
            raise ProtocolError(f"{block[:SHOWN_BYTES]!r} is not fanout: a controller is told nothing")
        if not self._greeted and not GREETING.startswith(block[: len(GREETING)]):
            raise ProtocolError(f"{block[:SHOWN_BYTES]!r} is not how fanout greets")
        *lines, left = block.split(b"\n")
        if lines and not self._greeted:
            self._greeted = True
            self.settle()
            del lines[0]
        parts = [line.partition(b"!") for line in lines]
        for _ in range(sum(not mark and channel.isdigit() for channel, mark, _ in parts)):
            self.settle()
        self.hear(Message(channel.decode(), payload) for channel, mark, payload in parts if mark)
        return len(block) - len(left), 0


def _to_subscribe(pattern: Pattern) -> bytes:
    """A channel where there is one with this meaning, all channels otherwise; `all` comes by itself."""
    text = pattern.value if isinstance(pattern, Exact) else str(pattern)
    native = not isinstance(pattern, Contains) and to_pattern(text) == pattern
    plain = utf8(text) == to_channel(text)
    return b"subscribe %b\n" % (text.encode() if native and plain else b">")
