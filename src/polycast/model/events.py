"""Events: what a session returns for the bytes it receives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from polycast.errors import PeerError
from polycast.model.burst import Body, Burst, Encoder
from polycast.model.patterns import Pattern
from polycast.model.start_positions import StartPosition


@dataclass(frozen=True, slots=True)
class Subscribe:
    pattern: Pattern
    encoder: Encoder
    serve: bool = False
    """Whether the subscriber also offers to serve requests for the route of that name."""
    start: StartPosition | None = None
    """None: only messages from now on."""
    committed: bool = False
    """Whether the subscriber gets messages only when they are durable, in all its subscriptions."""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Reply:
    """Bytes for this connection."""

    data: bytes


FailureReply = Callable[[str, int], bytes]
"""The reply for messages that did not become durable: from the reason, and how many messages did."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Bytes for this connection, to be sent when everything it published before is durable."""

    data: bytes
    to_failure: FailureReply


class BatchKey(NamedTuple):
    """A batch id and the identity that owns it. Batch ids of different identities are independent."""

    owner: str
    batch_id: str


CLIENT_BATCHES = "polycast/client/"
"""Batch ids of reconnecting clients: `polycast/client/CLIENT/NUMBER`. Of each client, the last are remembered."""

ErrorReply = Callable[[int, str], bytes]
"""The reply for a refused operation: from the error code and the message."""


@dataclass(frozen=True, slots=True)
class PublishBatch:
    """An atomic and idempotent batch: published as a whole or not at all, and once, however often it is sent.

    `to_ack` encodes the reply from the number of messages that were published under the id, now or the first time.
    """

    burst: Burst
    batch: BatchKey
    to_ack: Callable[[int], bytes]
    to_failure: FailureReply
    to_error: ErrorReply


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows for a batch that is not published yet, as an Arrow stream; they wait under the batch id and a name.

    `to_ack` encodes the reply from the number of rows that are staged under the name.
    """

    batch: BatchKey
    name: str
    data: bytes
    sha1: str
    """The checksum of the data in hex digits; empty: unchecked."""
    before: int | None
    """The number of rows staged before these, if the peer gives it; 0 starts the stage anew."""
    to_ack: Callable[[int], bytes]
    to_error: ErrorReply


@dataclass(frozen=True, slots=True)
class Commit:
    """Publishes the named stages as one batch, as a `PublishBatch`, and drops the other stages of the id."""

    batch: BatchKey
    names: tuple[str, ...]
    count: int | None
    """The number of rows that the batch must have, if the peer gives it."""
    to_ack: Callable[[int], bytes]
    to_failure: FailureReply
    to_error: ErrorReply


@dataclass(frozen=True, slots=True)
class Abort:
    """Drops the named stages."""

    batch: BatchKey
    names: tuple[str, ...] | None
    """None: all stages of the batch id."""
    ack: bytes
    to_error: ErrorReply


@dataclass(frozen=True, slots=True)
class DeferredReply:
    """Bytes for this connection, encoded when all earlier events have been handled."""

    encode: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Refused:
    """Input that was skipped; the connection stays open. `reason` is the label of the metric."""

    reason: str
    count: int = 1
    detail: str = ""
    """Details for the broker's stderr."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the peer. `handle` identifies it in the session's `to_response`."""

    route: str
    handle: Any
    body: Body


@dataclass(frozen=True, slots=True)
class PublishMessage:
    """A message whose publisher waits for its offset and sequence, as for the response to a request."""

    burst: Burst
    handle: Any


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """The response of a peer that serves a route, to the request with that number."""

    number: int
    success: bool
    body: Body


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The connection switches to another dialect: the next bytes go to that session."""

    dialect: str
    session: Any


@dataclass(frozen=True, slots=True)
class Closing:
    """The connection ends here; the rest of the input is ignored. Without an error, the peer requested it."""

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
    | PublishMessage
    | RouteResponse
    | Upgrade
    | Closing
)


class Received(NamedTuple):
    """What a session returns for a block.

    The bytes from `consumed` on are an unfinished frame: they come again, with more bytes behind them.
    `frame_bytes` is the length of that frame, or 0 while it is unknown. With `frame_end`, it is the maximum
    length, and the frame may end earlier, with that byte.
    """

    events: list[Event]
    consumed: int
    frame_bytes: int = 0
    frame_end: bytes = b""
