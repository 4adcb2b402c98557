"""The client's side of `fanout`: as a controller it publishes, as a client it subscribes."""

from __future__ import annotations

from polycast.address import Address
from polycast.dialects.client_session import SHOWN_BYTES, ClientSession, Command, Credentials, PendingAcks, utf8
from polycast.dialects.fanout.session import GREETING, NAME, to_channel, to_pattern
from polycast.errors import ProtocolError, UsageError
from polycast.model import Contains, Exact, Message, Pattern


class FanoutClientSession(ClientSession):
    dialect = NAME

    def __init__(self, address: Address, publishing: bool, credentials: Credentials) -> None:
        super().__init__(address, publishing, credentials)
        self._greeted = False

    def open(self) -> Command:
        return Command(b"", PendingAcks() if self.publishing else self.expect_ack(PendingAcks()))

    def encode(self, message: Message) -> bytes:
        channel = utf8(message.topic)
        if not channel or channel != to_channel(message.topic):
            problem = "it is empty, or has white space or '!'"
            raise UsageError(f"fanout cannot carry the topic {message.topic!r}: {problem}")
        if b"\n" in message.payload or message.payload.endswith(b"\r"):
            raise UsageError("fanout cannot carry a message with a line break")
        return b"%b %b\n" % (channel, message.payload)

    def to_subscribe(self, patterns: list[Pattern]) -> Command:
        """A `time` command follows: it replies after it has read the subscriptions."""
        commands = b"".join(map(_to_command, patterns))
        return Command(commands + b"time\n", self.expect_ack(PendingAcks()))

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        return pattern.matches(topic) or type(pattern)(to_channel(pattern.value).decode()).matches(topic)

    def read(self, block: bytes) -> tuple[int, int]:
        if self.publishing:
            raise ProtocolError(f"{block[:SHOWN_BYTES]!r} is not fanout: a broker sends nothing to a controller")
        if not self._greeted and not GREETING.startswith(block[: len(GREETING)]):
            raise ProtocolError(f"{block[:SHOWN_BYTES]!r} is not the greeting of fanout")
        *lines, left = block.split(b"\n")
        if lines and not self._greeted:
            self._greeted = True
            self.handle_ack()
            del lines[0]
        parts = [line.partition(b"!") for line in lines]
        for _ in range(sum(not mark and channel.isdigit() for channel, mark, _ in parts)):
            self.handle_ack()
        self.deliver(Message(channel.decode(), payload) for channel, mark, payload in parts if mark)
        return len(block) - len(left), 0


def _to_command(pattern: Pattern) -> bytes:
    """The channel that means the same pattern, or all channels; every client is subscribed to `all`."""
    text = pattern.value if isinstance(pattern, Exact) else str(pattern)
    native = not isinstance(pattern, Contains) and to_pattern(text) == pattern
    plain = utf8(text) == to_channel(text)
    return b"subscribe %b\n" % (text.encode() if native and plain else b">")
