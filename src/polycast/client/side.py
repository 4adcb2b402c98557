"""The client's side of a dialect: what it says to a broker, and what it makes of what it hears. No I/O, no clock.

A client (`blocking.Client`, `awaiting.AsyncClient`) is a thin shell around one: it sends what `open`, `blocks`,
`asks` and `closing_bytes` return, hands what arrives to `receive`, and waits until no ack is outstanding, or
until there are `messages`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from polycast.address import Address
from polycast.client.requests import Handler, Response
from polycast.client.secure import take_credentials
from polycast.errors import PeerError, RefusedError, RemoteError, UsageError
from polycast.model import Body, Burst, Closing, Event, Exact, Limits, Message, Pattern, Reply, StartPosition

BLOCK_BYTES = 256 * 1024
SHOWN_BYTES = 40
WINDOW = 8
"""How many answers a broker may owe before it is told more."""

Begin = StartPosition | Literal["latest"]
"""Where in the broker's log to begin."""


@dataclass(slots=True)
class Receipt:
    """How what was said is answered, in a dialect that answers."""

    owed: int = 0
    """How many answers are still to come."""
    sent: int = 0
    """How many messages it was."""
    accepted: int = 0
    error: RefusedError | None = None
    """The first refusal."""


class Said(NamedTuple):
    data: bytes
    receipt: Receipt


class Side:
    dialect: str
    one_way = True
    """Whether a connection either publishes or subscribes."""
    heard = False
    """Whether anything in this dialect has come."""
    unconfirmed = False
    """Whether anything was published that the broker will not answer."""
    pattern_bytes = Limits().topic_bytes
    """How long a pattern can be. Who answers nothing passes over longer ones without a word."""

    def __init__(self, address: Address, publishing: bool) -> None:
        self.address, self.credentials = take_credentials(address)
        self.publishing = publishing
        self.messages: list[Message] = []
        """What arrived, matches, and was not taken yet."""
        self.answers: dict[int, Response | None] = {}
        """What became of the requests that somebody waits for, by their numbers."""
        self.owed: deque[tuple[Receipt, int]] = deque()
        """The answers that are still to come, in their order: to whom, and for how many messages."""
        self.goodbye: RefusedError | None = None
        """Why the broker closes, where it says so."""
        self.broken: RemoteError | None = None
        """What is wrong with what the broker said."""
        self._patterns: list[Pattern] = []
        self._reply = b""
        self._chunks: list[bytes] = []
        self._held = 0
        self._need = 0

    # -- what a dialect says -----------------------------------------------------------------------------

    def open(self) -> Said:
        """The handshake."""
        return Said(b"", Receipt())

    def encode(self, message: Message) -> bytes:
        raise NotImplementedError

    def to_block(self, block: bytes, count: int, receipt: Receipt) -> bytes:
        """So many encoded messages, with whatever makes the broker answer."""
        return block

    def check_pattern(self, pattern: Pattern) -> None:
        """Raises what stands against asking for this."""

    def to_asks(self, patterns: list[Pattern]) -> Said:
        """The commands that bring at least all that matches the patterns, which have been checked."""
        raise NotImplementedError

    def check_start(self, patterns: list[Pattern], start: Begin) -> None:
        """Raises what stands against beginning there."""
        raise UsageError(f"{self.dialect} cannot ask for what was said before", "hermod can")

    def to_asks_from(self, patterns: list[Pattern], start: Begin) -> Said:
        """The same as `to_asks`, from somewhere in the broker's log on."""
        raise NotImplementedError

    def to_batch(self, messages: list[Message], batch_id: str, receipt: Receipt) -> bytes:
        """All of them, such that the broker takes them once, however often they come under this id."""
        raise UsageError(f"{self.dialect} has no batches with an id", "hermod has")

    def to_request(self, route: str, body: Body) -> tuple[bytes, int]:
        """A request, and the number under which its answer will come; who waits no more removes that number."""
        raise UsageError(f"{self.dialect} has no requests", "ubre and hermod have")

    def to_offer(self, route: str, handler: Handler) -> Said:
        """The offer to answer requests; they are answered while somebody reads."""
        raise UsageError(f"{self.dialect} answers no requests", "ubre does")

    def closing_bytes(self) -> bytes:
        return b""

    def read(self, block: bytes) -> tuple[int, int]:
        """How much of the block could be read, and how long the frame behind it will be (0: unknown)."""
        raise NotImplementedError

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        """Whether a topic, as this dialect writes it, matches the pattern."""
        return pattern.matches(topic)

    # -- what a shell asks for ---------------------------------------------------------------------------

    def blocks(self, messages: Iterable[Message], receipt: Receipt) -> Iterator[bytes]:
        """The messages, as blocks worth a write each."""
        self._check_publishing(messages)
        batch: list[bytes] = []
        size = 0
        for message in messages:
            batch.append(self.encode(message))
            size += len(batch[-1])
            if size >= BLOCK_BYTES:
                yield self._end_block(batch, receipt)
                batch, size = [], 0
        if batch:
            yield self._end_block(batch, receipt)

    def batch(self, messages: Iterable[Message], batch_id: str, receipt: Receipt) -> bytes:
        """All messages as one batch with an id; nothing where there are none."""
        self._check_publishing(messages)
        listed = list(messages)
        receipt.sent = len(listed)
        return self.to_batch(listed, batch_id, receipt) if listed else b""

    def _check_publishing(self, messages: Iterable[Message]) -> None:
        if isinstance(messages, Message):
            raise UsageError("publish takes a list of messages, not one message", "publish([message])")
        if self.one_way and not self.publishing:
            hint = "connect(..., publishing=True) makes one that publishes"
            raise UsageError(f"this {self.dialect} connection subscribes", hint)

    def _end_block(self, batch: list[bytes], receipt: Receipt) -> bytes:
        receipt.sent += len(batch)
        block = self.to_block(b"".join(batch), len(batch), receipt)
        self.unconfirmed = self.unconfirmed or not receipt.owed
        return block

    def asks(self, patterns: Iterable[Pattern], start: Begin | None = None) -> Said:
        if self.one_way and self.publishing:
            raise UsageError(f"this {self.dialect} connection publishes", "connect() another to subscribe")
        new = self.check_patterns(patterns, start)
        asks = self.to_asks(new) if start is None else self.to_asks_from(new, start)
        self._patterns += new
        return asks

    def check_patterns(self, patterns: Iterable[Pattern], start: Begin | None = None) -> list[Pattern]:
        """The same patterns, if all of them can be asked for, from there on."""
        checked = [patterns] if isinstance(patterns, str | Pattern) else list(patterns)
        if isinstance(patterns, Pattern) or not all(isinstance(pattern, Pattern) for pattern in checked):
            hint = "subscribe([parse_pattern('foo.>')]), with parse_pattern from polycast.model"
            raise UsageError(f"subscribe takes a list of patterns, not {patterns!r}", hint)
        for pattern in checked:
            self._check_size(pattern)
            self.check_pattern(pattern)
        if start is not None:
            self.check_start(checked, start)
        return checked

    def _check_size(self, pattern: Pattern) -> None:
        size, limit = len(utf8(pattern.value)), self.pattern_bytes
        if size > limit:
            raise UsageError(f"{self.dialect} cannot ask for {size:,} bytes: topics have {limit:,} at most")

    def receive(self, data: bytes) -> bytes:
        """Takes what arrived; returns what to say to it. Behind something unreadable nothing is looked at."""
        if self.broken is not None:
            return b""
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._need:
            return b""
        block = b"".join(self._chunks)
        try:
            consumed, self._need = self.read(block)
        except PeerError as error:
            self.broken = RemoteError(f"{self.address}: {error}", self.hint())
            return b""
        self._chunks = [block[consumed:]]
        self._held = len(block) - consumed
        self.heard = self.heard or consumed > 0
        reply, self._reply = self._reply, b""
        return reply

    def take(self) -> list[Message]:
        taken, self.messages = self.messages, []
        return taken

    def check(self, receipt: Receipt) -> None:
        """Raises what was refused."""
        error = receipt.error
        if error is not None:
            of = f"; {receipt.accepted:,} of {receipt.sent:,} messages were accepted" if receipt.sent > 1 else ""
            raise RefusedError(f"{error}{of}", error.code)

    def check_count(self, receipt: Receipt, batch_id: str, count: int) -> None:
        """Raises that the broker has another batch under this id."""
        if receipt.accepted != count:
            raise RefusedError(
                f"{self.address}: batch {batch_id!r} was published with {receipt.accepted:,} messages, "
                f"and this one has {count:,}: nothing was published",
                422,
                "send the same messages again, or use another batch id",
            )

    def check_end(self) -> None:
        """Raises what is wrong with a broker that closed when nothing more was expected of it."""
        if self.broken or self.goodbye or (self._held and not self.heard):
            raise self.ended()

    def ended(self) -> RemoteError:
        """The error for a broker that closed while something was still expected of it."""
        said = b"".join(self._chunks)[:SHOWN_BYTES]
        last = f" after it said {said!r}" if said else ""
        lost = ", some messages may be lost; its log says why" if self.unconfirmed else ""
        closed = RemoteError(f"{self.address}: the broker closed the connection{last}{lost}", self.hint())
        return self.broken or self.goodbye or closed

    def hint(self) -> str:
        """While the other end has not shown that it speaks this dialect."""
        who = " publishers" if self.publishing else " subscribers"
        place = f"{self.dialect}{who if self.one_way else ''}"
        return "" if self.heard else f"is that the address for {place}? 'polycast serve' prints who listens where"

    # -- what a dialect hears ----------------------------------------------------------------------------

    def owe(self, receipt: Receipt, count: int = 0) -> Receipt:
        """The broker will answer this."""
        receipt.owed += 1
        self.owed.append((receipt, count))
        return receipt

    def settle(self, error: RefusedError | None = None, accepted: int = 0) -> None:
        """It has answered the oldest of what it owes. `accepted` is how many it says that it has of a batch."""
        if not self.owed:
            return
        receipt, count = self.owed.popleft()
        receipt.owed -= 1
        receipt.accepted += accepted if error else count or accepted
        receipt.error = receipt.error or error

    def hear(self, messages: Iterable[Message]) -> None:
        topic, wanted = None, False
        for message in messages:
            if message.topic != topic:
                topic = message.topic
                wanted = any(self.wanted(pattern, topic) for pattern in self._patterns)
            if wanted:
                self.messages.append(message)

    def handle(self, event: Event) -> None:
        """For those whose words a session reads."""
        match event:
            case Burst():
                self.hear(event.messages())
            case Reply(data):
                self._reply += data
            case Closing(error) if error:
                raise error


def check_topic(pattern: Pattern, dialect: str) -> None:
    """For dialects that know no patterns."""
    if not isinstance(pattern, Exact):
        hint = "simplest, hermod, fanout and nanomsg can"
        raise UsageError(f"{dialect} cannot ask for {str(pattern)!r}, only for whole topics", hint)


def utf8(text: str) -> bytes:
    """A topic or pattern that a user typed."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{text!r} cannot be a topic: it is not UTF-8") from error
