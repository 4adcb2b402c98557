"""Events: what a session makes of the bytes it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from polycast.errors import PeerError
from polycast.model.burst import Body, Burst, Encoder
from polycast.model.patterns import Pattern


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where in the log a subscription begins: at a sequence of its topic, at a time, or else at the beginning."""

    sequence: int | None = None
    seconds: float | None = None
    """Since the epoch."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    pattern: Pattern
    encoder: Encoder
    serve: bool = False
    """Whether this is also an offer to answer requests for a route of that name."""
    start: StartPosition | None = None
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
class Ack:
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
class PublishBatch:
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
    """What was staged under these names is a batch now, kept as `PublishBatch` says; other stages of the id go."""

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
class DeferredReply:
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
class Response:
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
    | PublishBatch
    | Stage
    | Commit
    | Abort
    | Subscribe
    | Unsubscribe
    | Reply
    | Ack
    | DeferredReply
    | Refused
    | Request
    | Response
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
