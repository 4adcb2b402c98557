"""The dialect `tabs`: lines with tabs between their fields.

publisher -> broker     pub TAB topic TAB payload LF
subscriber -> broker    sub TAB topic LF      unsub TAB topic LF
either -> broker        sync LF
broker -> either        topic TAB payload LF      synced LF, the reply to `sync`
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from polycast.declare import setting
from polycast.dialects.client_session import ClientSession, Command, PendingAcks, check_topic, utf8
from polycast.dialects.contract import Dialect, DialectClient, PublishRules, Role
from polycast.dialects.framing import Reading, read_line
from polycast.dialects.session import Session, SessionContext
from polycast.errors import LimitError, PeerError, ProtocolError, UsageError
from polycast.model import (
    Block,
    Burst,
    Closing,
    Encoded,
    Encoder,
    Exact,
    Format,
    Message,
    Pattern,
    Received,
    Refused,
    Reply,
    Slices,
    Subscribe,
    Unsubscribe,
)

NAME = "tabs"


@dataclass(frozen=True, slots=True)
class TabsSettings:
    replacement: str = setting("?", "replaces a line end in a payload, and a tab or line end in a topic")


class TabsEncoder(Encoder):
    name = NAME

    def __init__(self, replacement: str) -> None:
        self._replacement = replacement.encode()

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        pieces: list[bytes | bytearray] = []
        lossy = 0
        for run, first, last in burst.runs(slices):
            topic = burst.topics[run].replace(b"\t", self._replacement).replace(b"\n", self._replacement)
            for i in range(first, last):
                payload = burst.block[burst.starts[i] : burst.ends[i]]
                line = payload.replace(b"\n", self._replacement)
                lossy += line != payload
                pieces += (topic, b"\t", line, b"\n")
        block = b"".join(pieces)
        return Encoded([block], len(block), lossy)


encoder_of = cache(TabsEncoder)


class TabsSession(Session):
    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        settings: TabsSettings = context.tables.get(NAME) or TabsSettings()
        self._encoder = encoder_of(settings.replacement)

    def receive(self, block: Block, now: float) -> Received:
        reading = Reading(NAME)
        position = 0
        try:
            if not self.first_line_checked:
                self.check_first_line(block)
            while True:
                line, after = read_line(block, position, self._limits.line_bytes)
                if after == position:
                    return reading.close(position)
                self._handle_line(line, reading)
                position = after
        except PeerError as error:
            reading.add(Closing(error))
            return reading.close(len(block))

    def _handle_line(self, line: bytes, reading: Reading) -> None:
        match line.split(b"\t", 2):
            case [b"pub", topic, payload] if topic:
                if len(topic) > self._limits.topic_bytes:
                    raise LimitError("a topic", len(topic), self._limits.topic_bytes, "limits.topic_bytes")
                reading.add_message(topic, payload, Format.BYTES)
            case [b"sub", topic]:
                reading.add(Subscribe(to_pattern(topic), self._encoder))
            case [b"unsub", topic]:
                reading.add(Unsubscribe(to_pattern(topic)))
            case [b"sync"]:
                reading.add(Reply(b"synced\n"))
            case _:
                reading.add(Refused("unknown command"))


def to_pattern(topic: bytes) -> Exact:
    try:
        return Exact(topic.decode())
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the topic {topic!r} is not UTF-8") from error


class TabsClientSession(ClientSession):
    dialect = NAME
    one_way = False

    def encode(self, message: Message) -> bytes:
        topic = utf8(message.topic)
        if not topic or b"\t" in topic or b"\n" in topic + message.payload:
            raise UsageError("tabs cannot carry an empty topic, a topic with a tab, or line ends")
        return b"pub\t%b\t%b\n" % (topic, message.payload)

    def to_block(self, block: bytes, count: int, acks: PendingAcks) -> bytes:
        self.expect_ack(acks, count)
        return block + b"sync\n"

    def check_pattern(self, pattern: Pattern) -> None:
        check_topic(pattern, NAME)

    def to_subscribe(self, patterns: list[Pattern]) -> Command:
        commands = [b"sub\t%b\n" % utf8(pattern.value) for pattern in patterns]
        return Command(b"".join(commands) + b"sync\n", self.expect_ack(PendingAcks()))

    def read(self, block: bytes) -> tuple[int, int]:
        *lines, rest = block.split(b"\n")
        for line in lines:
            topic, tab, payload = line.partition(b"\t")
            if tab:
                self.deliver([Message(topic.decode(), payload)])
            elif line == b"synced":
                self.handle_ack()
            else:
                raise ProtocolError(f"{line[:40]!r} is not tabs")
        return len(block) - len(rest), 0


DIALECT = Dialect(
    NAME,
    roles=(Role("tabs", NAME, TabsSession, default="tcp://127.0.0.1:9100"),),
    settings=TabsSettings,
    publish_rules=lambda settings: PublishRules(b"\t\n", payload_excludes=b"\n", empty_topic=False),
    client=DialectClient(TabsClientSession, publishers="tabs", subscribers="tabs"),
)
