"""Bursts: the messages of one read, in columns.

    block    the bytes that were read; all slices share them
    starts   the start of each payload in the block          one int64 per message
    ends     the end of each payload                         one int64 per message
    topics   the topic of each run, as UTF-8 bytes           one per run
    formats  the format of each run                          one per run
    run_ends the message index after each run                one per run (Arrow calls this run-end encoding)
    native   the encoder whose frames the block already has, so that slices of it are sent unchanged
    bounds   with `native`: the start of each frame, and the end of the last
    digests  the sha1 of each payload in 40 hex digits, one after the other, if it has been computed

A run is a sequence of consecutive messages with one topic and one format. The hub looks up one topic per run and
cuts slices, never messages. Bursts are mutable because they are on the hot path; the rest of the model is frozen.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, chain
from typing import Any, NamedTuple

from polycast.errors import UsageError

Block = bytes | bytearray
"""Bytes that were read. A bytearray if a large frame was assembled in place; it is not changed afterwards."""

Buffer = bytes | bytearray | memoryview
"""Bytes that can be written to a socket."""

DIGITS = 40
"""Of a sha1."""


class Format(StrEnum):
    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    NONE = "none"


class Body(NamedTuple):
    """The body of a request or a response."""

    payload: bytes = b""
    format: Format = Format.NONE


class MessageFields(NamedTuple):
    topic: str
    payload: bytes
    format: Format = Format.BYTES
    sequence: int | None = None
    """Its position in its topic, in dialects that have sequences."""
    offset: int | None = None
    """Its position in the log, in dialects that have offsets, if the broker has a log."""
    time: float | None = None
    """When the broker read it, in seconds since the epoch; known if the offset is."""


class Message(MessageFields):
    """One message, for clients, the CLI and tests. A payload may be given as text, which is encoded as UTF-8."""

    __slots__ = ()

    def __new__(
        cls,
        topic: str,
        payload: bytes | str,
        format: Format = Format.BYTES,  # noqa: A002 - the name of the field
        sequence: int | None = None,
        offset: int | None = None,
        time: float | None = None,
    ) -> Message:
        kind = format
        if not isinstance(payload, bytes):
            payload, kind = _to_payload(payload, format)
        return super().__new__(cls, topic, payload, kind, sequence, offset, time)


def _to_payload(payload: object, format_: Format) -> tuple[bytes, Format]:
    """The default format of text is `text`."""
    if not isinstance(payload, str):
        raise UsageError(
            f"a payload is bytes or text, not {type(payload).__name__}", "bytes(...) or json.dumps(...)"
        )
    try:
        return payload.encode(), Format.TEXT if format_ is Format.BYTES else format_
    except UnicodeEncodeError as error:
        raise UsageError(f"a payload is not UTF-8: {error}") from error


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that a session checks before it buffers anything."""

    payload_bytes: int = 16 * 1024 * 1024
    topic_bytes: int = 1024
    line_bytes: int = 64 * 1024


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
    native: Encoder | None = None
    digests: Block | None = None
    sequences: list[int] = field(default_factory=list)
    """The sequence of each run's first message, once the hub has numbered the burst."""
    offset: int = -1
    """The log offset of the first message, set with the sequences; the others follow without a gap."""
    micros: int = 0
    """The time of the messages in microseconds since the epoch, set with the sequences."""
    times: Sequence[int] = ()
    """The time of each message, if they differ: in messages from the log."""

    @classmethod
    def of(cls, dialect: str, messages: Iterable[tuple[bytes, bytes, Format]]) -> Burst:
        """Columns from rows, for messages that did not arrive as a block of plain frames."""
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

    def span_bytes(self) -> int:
        """About the bytes of the block that its messages take: other bursts may have the same block."""
        return len(self.topics[0]) + self.ends[-1] - self.starts[0] if len(self.starts) else 0

    def rename(self, topics: list[bytes]) -> Burst:
        """The same payloads with other topics, one for each run."""
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
            self.digests[DIGITS * start : DIGITS * stop] if self.digests else None,
        )

    def runs(self, slices: Slices | None = None) -> Iterator[tuple[int, int, int]]:
        """(run, start, stop) for each run that has messages in the slices."""
        for begin, stop in slices if slices is not None else [(0, len(self))]:
            start = begin
            run = bisect_right(self.run_ends, start)
            while start < stop:
                end = min(self.run_ends[run], stop)
                yield run, start, end
                start = end
                run += 1

    def each_time(self) -> Sequence[int]:
        """In microseconds since the epoch."""
        return self.times or array("q", [self.micros]) * len(self)

    def messages(self) -> Iterator[Message]:
        """As rows. For clients and tests, never on the path from socket to socket."""
        for run, first, last in self.runs():
            topic = self.topics[run].decode()
            for i in range(first, last):
                yield Message(topic, bytes(self.block[self.starts[i] : self.ends[i]]), self.formats[run])


Slices = Sequence[tuple[int, int]]
"""Ranges of messages of a burst, as (start, stop)."""


class PackedSlices(Sequence[tuple[int, int]]):
    """Slices in one array: a burst whose messages go to many audiences has thousands of them."""

    __slots__ = ("edges", "messages")

    def __init__(self, edges: array[int], messages: int) -> None:
        self.edges = edges
        """The start and the stop of each slice."""
        self.messages = messages
        """How many messages they have."""

    def __len__(self) -> int:
        return len(self.edges) // 2

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.edges[::2], self.edges[1::2], strict=True)


def count_messages(slices: Slices) -> int:
    return slices.messages if type(slices) is PackedSlices else sum([stop - start for start, stop in slices])


def edges_of(slices: Slices) -> array[int]:
    """The start and the stop of each slice."""
    return slices.edges if type(slices) is PackedSlices else array("q", chain.from_iterable(slices))


class Encoded(NamedTuple):
    """Slices of a burst, encoded for a dialect. `lossy` counts payloads that had to be changed."""

    blocks: list[Buffer]
    size: int
    lossy: int = 0


class Encoder:
    """Writes the messages of subscriptions. Subscriptions with the same encoder share one encoding of a burst."""

    name: str
    takes_precedence = False
    """Whether this encoder wins if several subscriptions of a connection match."""

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        raise NotImplementedError
