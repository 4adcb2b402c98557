"""The encoders of UBRE: JSON or binary, in WebSocket messages or on a stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat

from polycast.dialects.framing import pass_through
from polycast.dialects.json_bodies import to_json, to_string
from polycast.dialects.ubre.messages import HEADER, NAME_BYTES_AT_MOST, PUBLISH, STREAMING
from polycast.dialects.web.websocket import BINARY, TEXT, header
from polycast.model import Buffer, Burst, Encoded, Encoder, Format, Slices

NAME = "ubre"

Before = Callable[[int], bytes]
"""From the size of a message to the bytes before it."""


class JsonEncoder(Encoder):
    name = NAME

    def __init__(self, before: Before, after: bytes, offsets: bool = False) -> None:
        self._before = before
        self._after = after
        self._offsets = offsets
        """Whether publications have their offset, sequence and time."""

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if burst.native is self:
            return pass_through(burst, slices)
        pieces: list[Buffer] = []
        before, close = self._before, b"}" + self._after
        for run, first, last in burst.runs(slices):
            head = b'{"publish":' + to_string(burst.topics[run].decode())
            heads = _with_positions(head, burst, run, first, last) if self._offsets else repeat(head)
            for body, each in zip(_bodies(burst, run, first, last), heads, strict=False):
                opening = each + b',"body":' if body else each
                pieces += (before(len(opening) + len(body) + 1), opening, body, close)
        joined = b"".join(pieces)
        return Encoded([joined], len(joined))


def _with_positions(head: bytes, burst: Burst, run: int, first: int, last: int) -> list[bytes]:
    shift = burst.sequences[run] - (burst.run_ends[run - 1] if run else 0)
    offset, times = burst.offset, burst.each_time()
    return [
        b'%b,"offset":%d,"sequence":%d,"time":%d' % (head, offset + i, i + shift, times[i])
        for i in range(first, last)
    ]


def _bodies(burst: Burst, run: int, first: int, last: int) -> list[bytes]:
    """JSON values. Payloads of the format JSON from UBRE sessions are known to be valid."""
    block, format_ = burst.block, burst.formats[run]
    payloads = [
        bytes(block[start:end])
        for start, end in zip(burst.starts[first:last], burst.ends[first:last], strict=True)
    ]
    if format_ is Format.JSON and burst.dialect == NAME:
        return payloads
    return [to_json(payload, format_) for payload in payloads]


class BinaryEncoder(Encoder):
    name = NAME

    def __init__(self, before: Before) -> None:
        self._before = before

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        pieces: list[Buffer] = []
        before, view = self._before, memoryview(burst.block)
        lossy = 0
        for run, first, last in burst.runs(slices):
            topic = burst.topics[run]
            for i in range(first, last):
                begin, end = burst.starts[i], burst.ends[i]
                size = end - begin
                if len(topic) > NAME_BYTES_AT_MOST or size >= STREAMING:
                    lossy += 1  # the length does not fit into the header
                    continue
                head = HEADER.pack(PUBLISH, len(topic), size)
                pieces += (before(HEADER.size + len(topic) + size), head, topic, view[begin:end])
        joined = b"".join(pieces)
        return Encoded([joined], len(joined), lossy)


JSON_LINES = JsonEncoder(lambda size: b"", b"\n")
JSON_FRAMES = JsonEncoder(partial(header, TEXT), b"")
OFFSET_LINES = JsonEncoder(lambda size: b"", b"\n", offsets=True)
OFFSET_FRAMES = JsonEncoder(partial(header, TEXT), b"", offsets=True)
BINARY_STREAM = BinaryEncoder(lambda size: b"")
BINARY_FRAMES = BinaryEncoder(partial(header, BINARY))
