"""The base of client sessions: a client's side of a dialect. No I/O, no clock.

A client (`polycast.client`) sends the bytes that `open`, `blocks`, `subscribe` and `closing_bytes` return, passes
the bytes that arrive to `receive`, and waits until no acknowledgement is pending, or until there are `messages`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from polycast.address import Address
from polycast.dialects.client_requests import Deferred, Handler, Response
from polycast.dialects.client_subscriptions import ClientSubscription, ClientSubscriptions, StartFrom
from polycast.errors import HttpStatusError, PeerError, RefusedError, RemoteError, UsageError
from polycast.model import Body, Burst, Closing, Event, Exact, Limits, Message, Pattern, Reply, StartPosition

BLOCK_BYTES = 256 * 1024
SHOWN_BYTES = 40
COMMAND_BYTES, PATTERN_BYTES = 32 * 1024, 8
"""The patterns of one command when a client subscribes again, and the bytes around each of them."""
DENIALS = (401, 403)
"""HTTP statuses, and codes of hermod, for a peer without an identity or without a right."""
WINDOW = 8
"""How many acknowledgements may be pending before a client stops sending."""


@dataclass(frozen=True, slots=True)
class Credentials:
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: str = ""


@dataclass(slots=True)
class PendingAcks:
    """The acknowledgements of one operation, in a dialect that acknowledges."""

    pending: int = 0
    """How many are still to come."""
    sent: int = 0
    """How many messages were sent."""
    accepted: int = 0
    error: RefusedError | None = None
    """The first refusal."""
    subscription: ClientSubscription | None = None
    """The subscription that the broker will confirm."""


class Command(NamedTuple):
    """Bytes to send, and the acknowledgements to wait for."""

    data: bytes
    acks: PendingAcks


class Missed(NamedTuple):
    """Messages that the broker's log could not deliver to a subscription: damaged, removed or not durable."""

    first: int
    """Their offsets, up to `next`."""
    next: int
    text: str


class ClientSession:
    dialect: str
    one_way = True
    """Whether a connection either publishes or subscribes."""
    recognized = False
    """Whether the broker has sent anything in this dialect."""
    unacknowledged = False
    """Whether messages were published that the broker does not acknowledge."""
    resumes = False
    """Whether the client reconnects, and resumes by offset if the broker has offsets."""
    resends = False
    """Whether the broker recognises a block that it gets again, so that it can be sent again."""
    log_id = ""
    """The broker's log, to which the offsets of this session belong."""
    progressed = False
    """Whether anything was received or acknowledged, besides commands."""
    closing = False
    """Whether the broker has announced that it closes the connection."""
    defers = False
    """Whether the client awaits the results of handlers that are `async`."""
    pattern_bytes = Limits().topic_bytes
    """The longest pattern. Brokers ignore longer ones in dialects without acknowledgements."""

    def __init__(self, address: Address, publishing: bool, credentials: Credentials) -> None:
        self.address, self.credentials = address, credentials
        self.publishing = publishing
        self.messages: list[Message] = []
        """Messages that arrived, match a subscription, and were not taken yet."""
        self.on_missed: Callable[[Missed], object] = lambda missed: None
        """Called for each notice about missing messages."""
        self.responses: dict[int, Response | None] = {}
        """Responses by request number; None: still to come."""
        self.deferred: list[Deferred] = []
        """Requests whose handlers are to be awaited."""
        self.pending: deque[tuple[PendingAcks, int]] = deque()
        """Pending acknowledgements, oldest first: the operation, and the number of messages."""
        self.refusal: RefusedError | None = None
        """Why the broker closes the connection, if it says so."""
        self.failure: RemoteError | None = None
        """The protocol error of the broker."""
        self.subscriptions = ClientSubscriptions(self.wanted)
        self.routes: dict[str, Handler] = {}
        """The handlers of the routes that this client serves."""
        self._reply = b""
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._need = 0

    # -- what a dialect writes ---------------------------------------------------------------------------

    def open(self) -> Command:
        """The handshake."""
        return Command(b"", PendingAcks())

    def encode(self, message: Message) -> bytes:
        raise NotImplementedError

    def to_block(self, block: bytes, count: int, acks: PendingAcks) -> bytes:
        """`count` encoded messages, with the frame that requests an acknowledgement, if the dialect has one."""
        return block

    def to_block_with_id(self, block: bytes, count: int, acks: PendingAcks, batch_id: str) -> bytes:
        """A block that the broker publishes once, however often it gets it. Only if `resends`."""
        raise NotImplementedError

    def check_pattern(self, pattern: Pattern) -> None:
        """Raises UsageError if the dialect cannot subscribe to the pattern."""

    def to_subscribe(self, patterns: list[Pattern]) -> Command:
        """Subscribes to at least the topics that match the patterns, which have been checked."""
        raise NotImplementedError

    def check_start(self, patterns: list[Pattern], start: StartFrom) -> None:
        """Raises UsageError if the dialect cannot start there."""
        raise UsageError(f"{self.dialect} cannot read from the log", "hermod can")

    def to_subscribe_from(self, patterns: list[Pattern], start: StartFrom) -> Command:
        """The same as `to_subscribe`, from a position in the broker's log."""
        raise NotImplementedError

    def to_batch(self, messages: list[Message], batch_id: str, acks: PendingAcks) -> bytes:
        """An idempotent batch: the broker publishes it once, however often it is sent under this id."""
        raise UsageError(f"{self.dialect} has no batches with an id", "hermod has")

    def to_stage(self, batch_id: str, name: str, before: int, frame: memoryview, acks: PendingAcks) -> bytes:
        """Stages rows, as an Arrow stream; `before` rows of the stage were sent earlier."""
        raise UsageError(f"{self.dialect} has no stages", "hermod has")

    def to_commit(self, batch_id: str, names: Sequence[str], count: int | None, acks: PendingAcks) -> bytes:
        raise UsageError(f"{self.dialect} has no stages", "hermod has")

    def to_abort(self, batch_id: str, names: Sequence[str] | None, acks: PendingAcks) -> bytes:
        raise UsageError(f"{self.dialect} has no stages", "hermod has")

    def to_request(self, route: str, body: Body) -> tuple[bytes, int]:
        """A request, and its number in `responses`; the caller removes that entry."""
        raise UsageError(f"{self.dialect} has no requests", "ubre and hermod have")

    def to_offer(self, route: str, handler: Handler) -> Command:
        """Offers a route. Requests are handled while the client reads."""
        raise UsageError(f"{self.dialect} cannot serve routes", "ubre can")

    def to_late_response(self, route: str, handle: Any, result: Any) -> bytes:
        """The response to a request whose handler was awaited; `result` is its result or its exception."""
        raise NotImplementedError

    def closing_bytes(self) -> bytes:
        return b""

    def read(self, block: bytes) -> tuple[int, int]:
        """How many bytes were consumed, and the length of the unfinished frame behind them (0: unknown)."""
        raise NotImplementedError

    def wanted(self, pattern: Pattern, topic: str) -> bool:
        """Whether a topic, as this dialect writes it, matches the pattern."""
        return pattern.matches(topic)

    # -- what a client calls -----------------------------------------------------------------------------

    def encoded(self, messages: Iterable[Message]) -> Iterator[tuple[bytes, int]]:
        """The messages in blocks of about BLOCK_BYTES, each with its number of messages."""
        self._check_publishing(messages)
        batch: list[bytes] = []
        size = 0
        for message in messages:
            batch.append(self.encode(message))
            size += len(batch[-1])
            if size >= BLOCK_BYTES:
                yield b"".join(batch), len(batch)
                batch, size = [], 0
        if batch:
            yield b"".join(batch), len(batch)

    def batch(self, messages: Iterable[Message], batch_id: str, acks: PendingAcks) -> bytes:
        """All messages as one batch with an id; empty without messages."""
        self._check_publishing(messages)
        listed = list(messages)
        acks.sent = len(listed)
        return self.to_batch(listed, batch_id, acks) if listed else b""

    def _check_publishing(self, messages: Iterable[Message]) -> None:
        if isinstance(messages, Message):
            raise UsageError("publish takes a list of messages, not one message", "publish([message])")
        if self.one_way and not self.publishing:
            hint = "connect(..., publishing=True) makes one that publishes"
            raise UsageError(f"this {self.dialect} connection subscribes", hint)

    def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> Command:
        if self.one_way and self.publishing:
            raise UsageError(f"this {self.dialect} connection publishes", "connect() another to subscribe")
        return self._subscribe(ClientSubscription(self.check_patterns(patterns, start), start))

    def _subscribe(self, subscription: ClientSubscription) -> Command:
        patterns, start = subscription.patterns, subscription.start
        outgoing = self.to_subscribe(patterns) if start is None else self.to_subscribe_from(patterns, start)
        outgoing.acks.subscription = subscription
        self.subscriptions.add(subscription)
        return outgoing

    def resume(self, before: ClientSession) -> list[Command]:
        """Takes over the messages of an earlier session that were not taken, and its subscriptions and routes."""
        self.messages = before.messages
        self.log_id = self.log_id or before.log_id
        point = before.subscriptions.resume()
        start = StartPosition(offset=point.offset)
        commands = [self.to_subscribe_from(part, start) for part in _parts(point.known)]
        commands += [self.to_subscribe(part) for part in _parts(point.unknown)]
        for subscription in before.subscriptions:
            if subscription.alone:  # no message of this subscription has arrived
                commands.append(self._subscribe(subscription))
            else:
                self.subscriptions.add(subscription, in_force=True)
        return commands + [self.to_offer(route, handler) for route, handler in before.routes.items()]

    def check_patterns(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> list[Pattern]:
        """The same patterns; UsageError if the dialect cannot subscribe to one of them."""
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
            raise UsageError(f"{self.dialect} cannot subscribe to {size:,} bytes: topics have {limit:,} at most")

    def receive(self, data: bytes) -> bytes:
        """Reads what arrived and returns the reply to send. After a protocol error, input is ignored."""
        if self.failure is not None:
            return b""
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered < self._need:
            return b""
        block = b"".join(self._chunks)
        try:
            consumed, self._need = self.read(block)
        except PeerError as error:
            self.failure = self._to_failure(error)
            return b""
        self._chunks = [block[consumed:]]
        self._buffered = len(block) - consumed
        self.recognized = self.recognized or consumed > 0
        reply, self._reply = self._reply, b""
        return reply

    def _to_failure(self, error: PeerError) -> RemoteError:
        text = f"{self.address}: {error}"
        if isinstance(error, HttpStatusError) and error.status in DENIALS:
            return RefusedError(text, error.status)
        return RemoteError(text, self.hint())

    def take(self) -> list[Message]:
        taken, self.messages = self.messages, []
        return taken

    def check(self, acks: PendingAcks) -> None:
        """Raises RefusedError if the broker refused anything."""
        error = acks.error
        if error is not None:
            of = f"; {acks.accepted:,} of {acks.sent:,} messages were accepted" if acks.sent > 1 else ""
            raise RefusedError(f"{error}{of}", error.code, error.hint)

    def check_count(self, acks: PendingAcks, batch_id: str, count: int) -> None:
        """Raises RefusedError if the broker has another batch under this id."""
        if acks.accepted != count:
            raise RefusedError(
                f"{self.address}: batch {batch_id!r} was published with {acks.accepted:,} messages, "
                f"and this one has {count:,}: nothing was published",
                422,
                "send the same messages again, or use another batch id",
            )

    def check_end(self) -> None:
        """Raises unless the broker closed the connection in good order."""
        if self.failure or self.refusal or (self._buffered and not self.recognized):
            raise self.ended()

    def ended(self) -> RemoteError:
        """The error for a broker that closed the connection too early."""
        rest = b"".join(self._chunks)[:SHOWN_BYTES]
        last = f" after sending {rest!r}" if rest else ""
        lost = ", some messages may be lost; its log says why" if self.unacknowledged else ""
        hints = (self.hint(), "hermod and ubre report why a message is refused" if self.unacknowledged else "")
        text = f"{self.address}: the broker closed the connection{last}{lost}"
        closed = RemoteError(text, "; ".join(filter(None, hints)))
        return self.failure or self.refusal or closed

    def hint(self) -> str:
        """Until the broker has sent something in this dialect, the address may be wrong."""
        clients = " publishers" if self.publishing else " subscribers"
        expected = f"{self.dialect}{clients if self.one_way else ''}"
        return (
            ""
            if self.recognized
            else f"is that the address for {expected}? 'polycast serve' prints its listeners; --dialect D speaks "
            "another dialect"
        )

    # -- what a dialect reads ----------------------------------------------------------------------------

    def expect_ack(self, acks: PendingAcks, count: int = 0) -> PendingAcks:
        """The broker will acknowledge this: `count` messages, or a command."""
        acks.pending += 1
        self.pending.append((acks, count))
        return acks

    def handle_ack(
        self, error: RefusedError | None = None, accepted: int = 0, log_next: int | None = None
    ) -> None:
        """Completes the oldest pending acknowledgement. `accepted` is the count that the broker gives, `log_next`
        the end of its log."""
        if not self.pending:
            return
        acks, count = self.pending.popleft()
        acks.pending -= 1
        acks.accepted += accepted if error else count or accepted
        acks.error = acks.error or error
        self.progressed = self.progressed or count > 0
        if acks.subscription and error:
            self.subscriptions.remove(acks.subscription)
        elif acks.subscription:
            self.subscriptions.confirm(acks.subscription, log_next)

    def deliver(self, messages: Iterable[Message]) -> None:
        self.messages += filter(self.subscriptions.take, messages)
        self.progressed = self.progressed or bool(self.messages)

    def handle(self, event: Event) -> None:
        """An event of a session, in dialects whose clients read with the broker's session."""
        match event:
            case Burst():
                self.deliver(event.messages())
            case Reply(data):
                self._reply += data
            case Closing(error) if error:
                raise error


def _parts(patterns: list[Pattern]) -> Iterator[list[Pattern]]:
    """Parts that fit into one header each."""
    part: list[Pattern] = []
    size = 0
    for pattern in patterns:
        size += len(pattern.value.encode()) + PATTERN_BYTES
        if part and size > COMMAND_BYTES:
            yield part
            part, size = [], 0
        part.append(pattern)
    if part:
        yield part


def check_topic(pattern: Pattern, dialect: str) -> None:
    """For dialects without patterns."""
    if not isinstance(pattern, Exact):
        hint = "simplest, hermod, fanout and nanomsg can"
        raise UsageError(f"{dialect} cannot subscribe to {str(pattern)!r}, only to whole topics", hint)


def utf8(text: str) -> bytes:
    """UsageError for a text with lone surrogates, as from an undecodable command line, and for another type."""
    if not isinstance(text, str):
        raise UsageError(f"a topic or a batch id is text, not {type(text).__name__}", "topic.decode()")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{text!r} cannot be a topic: it is not UTF-8") from error
