"""The waist: what every dialect is translated to and from.

A burst is what one read brought, as columns:

    block    the bytes that were read, shared by everything that is cut from it
    starts   where each payload begins in the block          one int64 per message
    ends     where it ends                                   one int64 per message
    topics   the topic of each run, as UTF-8 bytes           one per run
    formats  the format of each run                          one per run
    run_ends the message index after each run                one per run (Arrow calls this run-end encoding)
    native   the form whose frames these are already, so that slices of the block can go out as they came in
    bounds   then: where each frame begins, and the end of the last
    digests  the sha1 of each payload in hex digits, where somebody has computed it already

A run is a stretch of consecutive messages with one topic and one format. The hub looks up one topic per run
and cuts slices, never messages. Bursts are on the hot path and mutable for that reason only; everything else
here is frozen.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any, NamedTuple

from polycast.errors import PeerError, UsageError

Block = bytes | bytearray
"""What was read. A bytearray where a large frame was assembled in place; nobody writes to it afterwards."""

Buffer = bytes | bytearray | memoryview
"""What can be handed to a socket."""

RESERVED = "polycast/"
"""Topics the broker and its pipelines speak about themselves on."""


class Format(StrEnum):
    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    NONE = "none"


class Body(NamedTuple):
    """What a request or its answer carries."""

    payload: bytes = b""
    format: Format = Format.NONE


class Message(NamedTuple):
    """One message, for edges where people are: clients, the CLI, tests."""

    topic: str
    payload: bytes
    format: Format = Format.BYTES
    sequence: int | None = None
    """Its place in its topic, where the dialect that brought it tells."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a session checks a length against before it keeps a byte."""

    payload_bytes: int = 16 * 1024 * 1024
    topic_bytes: int = 1024
    line_bytes: int = 64 * 1024


# -- bursts ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Burst:
    dialect: str
    block: Block
    starts: Sequence[int]
    ends: Sequence[int]
    topics: list[bytes]
    formats: list[Format]
    run_ends: list[int]
    bounds: Sequence[int] = ()
    native: Form | None = None
    digests: list[bytes] | None = None
    sequences: list[int] = field(default_factory=list)
    """The sequence of each run's first message, once the hub has numbered the burst."""
    offset: int = -1
    """The place of its first message in the log, by then; those of the others follow without a gap."""

    @classmethod
    def of(cls, dialect: str, messages: Iterable[tuple[bytes, bytes, Format]]) -> Burst:
        """Columns from rows, for whatever did not come as a block of its own frames."""
        topics: list[bytes] = []
        formats: list[Format] = []
        run_ends: list[int] = []
        payloads: list[bytes] = []
        for topic, payload, format_ in messages:
            payloads.append(payload)
            if topics and topics[-1] == topic and formats[-1] is format_:
                run_ends[-1] += 1
            else:
                topics.append(topic)
                formats.append(format_)
                run_ends.append(len(payloads))
        edges = array("q", accumulate(map(len, payloads), initial=0))
        return cls(dialect, b"".join(payloads), edges[:-1], edges[1:], topics, formats, run_ends)

    def __len__(self) -> int:
        return len(self.starts)

    def rename(self, topics: list[bytes]) -> Burst:
        """The same payloads under other topics, one for each run."""
        return Burst(
            self.dialect, self.block, self.starts, self.ends, topics, self.formats, self.run_ends,
            digests=self.digests,
        )  # fmt: skip

    def cut(self, start: int, stop: int) -> Burst:
        """The messages from `start` up to `stop`, on the same block."""
        first = bisect_right(self.run_ends, start)
        last = bisect_right(self.run_ends, stop - 1)
        return Burst(
            self.dialect,
            self.block,
            self.starts[start:stop],
            self.ends[start:stop],
            self.topics[first : last + 1],
            self.formats[first : last + 1],
            [min(end, stop) - start for end in self.run_ends[first : last + 1]],
            self.bounds[start : stop + 1],
            self.native,
            self.digests[start:stop] if self.digests else None,
        )

    def runs(self, slices: Slices | None = None) -> Iterator[tuple[int, int, int]]:
        """(run, first message, message after the last) for each run that has messages in the slices."""
        for begin, stop in slices if slices is not None else [(0, len(self))]:
            start = begin
            run = bisect_right(self.run_ends, start)
            while start < stop:
                end = min(self.run_ends[run], stop)
                yield run, start, end
                start = end
                run += 1

    def messages(self) -> Iterator[Message]:
        """Rows again. For edges and tests, never on the way from socket to socket."""
        for run, first, last in self.runs():
            topic = self.topics[run].decode()
            for i in range(first, last):
                yield Message(topic, bytes(self.block[self.starts[i] : self.ends[i]]), self.formats[run])


Slices = list[tuple[int, int]]
"""Stretches of messages of a burst, each from its first message up to the one after its last."""


class Encoded(NamedTuple):
    """Slices of a burst as some dialect sends them. `lossy` counts payloads that had to be changed."""

    blocks: list[Buffer]
    size: int
    lossy: int = 0


# -- patterns --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exact:
    value: str

    def matches(self, topic: str) -> bool:
        return topic == self.value

    def __str__(self) -> str:
        plain = self.value and self.value[0] not in "~=" and not self.value.endswith(">")
        return self.value if plain else "=" + self.value


@dataclass(frozen=True, slots=True)
class Prefix:
    value: str

    def matches(self, topic: str) -> bool:
        return topic.startswith(self.value) and _open_to(self.value, topic)

    def __str__(self) -> str:
        escape = "^" if self.value.startswith(tuple(MARKS)) else ""
        return f"{escape}{self.value}>"


@dataclass(frozen=True, slots=True)
class Contains:
    value: str

    def matches(self, topic: str) -> bool:
        return self.value in topic and _open_to(self.value, topic)

    def __str__(self) -> str:
        return "~" + self.value


@dataclass(frozen=True, slots=True)
class Everything:
    value: str = ""

    def matches(self, topic: str) -> bool:
        return not topic.startswith(RESERVED)

    def __str__(self) -> str:
        return ">"


Pattern = Exact | Prefix | Contains | Everything

MARKS = "~=^"
"""What a pattern's text may begin with to say what kind it is."""


def _open_to(value: str, topic: str) -> bool:
    return value.startswith(RESERVED) or not topic.startswith(RESERVED)


def parse_pattern(text: str) -> Pattern:
    """The one text form: `foo` exact, `foo.>` begins with `foo.`, `~foo` contains, `>` all, `=foo` exact.

    Every pattern has a text that parses back to it: a prefix that itself begins with a mark is written `^~foo>`.
    """
    if text in (">", "~"):
        return Everything()
    if text.startswith("="):
        return Exact(text[1:])
    if text.startswith("~"):
        return Contains(text[1:])
    if text.endswith(">"):
        escaped = text[0] == "^" and text[1] in MARKS
        return Prefix(text[1 if escaped else 0 : -1])
    if not text:
        raise UsageError("a pattern cannot be empty", "'>' matches everything, '=' just the empty topic")
    return Exact(text)


def parse_patterns(text: str) -> tuple[Pattern, ...]:
    """Several of them, comma-separated."""
    return tuple(parse_pattern(part.strip()) for part in text.split(","))


# -- events: what a session makes of the bytes it is given ----------------------------------------------


class Form:
    """How a subscription wants its messages: an encoder, shared by all who want the same."""

    name: str
    prevails = False
    """Whether it is the one that counts where another subscription of the same connection matches, too."""

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Start:
    """Where in the log a subscription begins: at a sequence of its topic, at a time, or else at the beginning."""

    sequence: int | None = None
    seconds: float | None = None
    """Since the epoch."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    pattern: Pattern
    form: Form
    serve: bool = False
    """Whether this is also an offer to answer requests for a route of that name."""
    start: Start | None = None
    """None: with what comes from now on."""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Reply:
    """Bytes for this connection alone."""

    data: bytes


Refusal = Callable[[str, int], bytes]
"""From why it could not be kept, and how much of it was, to what is answered."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Bytes for this connection alone, once all that it published before them is kept as the log promises."""

    data: bytes
    refusal: Refusal


class BatchKey(NamedTuple):
    """A batch id, and the identity that it belongs to: two identities may use one id, and never meet."""

    owner: str
    batch_id: str


Denial = Callable[[int, str], bytes]
"""From a code and why it was not done to what is answered."""


@dataclass(frozen=True, slots=True)
class Once:
    """A burst that is kept as a whole or not at all, and only once, however often its owner sends it.

    `answer` makes the reply from how many messages were kept under the id, now or when it first came.
    """

    burst: Burst
    batch: BatchKey
    answer: Callable[[int], bytes]
    refusal: Refusal
    denial: Denial


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows for a batch that is not published yet, as an Arrow stream: they wait under its id and a name.

    `answer` makes the reply from how many rows are staged under that name by now.
    """

    batch: BatchKey
    name: str
    data: bytes
    sha1: str
    """Of the data, in hex digits, where the peer says so."""
    before: int | None
    """How many rows it is to follow, where the peer says so; 0 begins the stage anew."""
    answer: Callable[[int], bytes]
    denial: Denial


@dataclass(frozen=True, slots=True)
class Commit:
    """What was staged under these names is a batch now, kept as `Once` says; other stages of the id go."""

    batch: BatchKey
    names: tuple[str, ...]
    count: int | None
    """How many rows that must be, where the peer says so."""
    answer: Callable[[int], bytes]
    refusal: Refusal
    denial: Denial


@dataclass(frozen=True, slots=True)
class Abort:
    """What was staged under these names is not wanted any more."""

    batch: BatchKey
    names: tuple[str, ...] | None
    """None: all that there are."""
    answer: bytes
    denial: Denial


@dataclass(frozen=True, slots=True)
class Deferred:
    """Bytes for this connection alone, to be made when all before them has happened."""

    make: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Refused:
    """Input that was passed over; the connection stays. `reason` is the word it is counted under."""

    reason: str
    count: int = 1
    detail: str = ""
    """What an operator would want to read about it."""


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody wants an answer. `handle` is what its session needs to say to whom, and in which form."""

    route: str
    handle: Any
    body: Body


@dataclass(frozen=True, slots=True)
class Answer:
    """What a connection that serves a route made of the request with that number."""

    number: int
    success: bool
    body: Body


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From here on this connection speaks another dialect; its next bytes go to that session."""

    dialect: str
    session: Any


@dataclass(frozen=True, slots=True)
class Closing:
    """The connection ends here; whatever follows in the input is not looked at. No error: the peer wished it."""

    error: PeerError | None = None


Event = (
    Burst
    | Once
    | Stage
    | Commit
    | Abort
    | Subscribe
    | Unsubscribe
    | Reply
    | Receipt
    | Deferred
    | Refused
    | Request
    | Answer
    | Upgrade
    | Closing
)


class Received(NamedTuple):
    """What a session made of a block.

    The bytes from `consumed` on are an unfinished frame: they come again, with more behind them. `need` is how
    long that frame will be in all, where its header has told so, and 0 otherwise. With `until`, it is how long the
    frame can be at most, and it may end earlier, with that byte.
    """

    events: list[Event]
    consumed: int
    need: int = 0
    until: bytes = b""
