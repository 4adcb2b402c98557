"""The encoders of UBRE: JSON or binary, in WebSocket messages or on a stream."""

from __future__ import annotations

from collections.abc import Callable

from polycast.dialects.framing import pass_through
from polycast.dialects.json_bodies import to_json, to_string
from polycast.dialects.ubre.messages import HEADER, NAME_BYTES_AT_MOST, PUBLISH, STREAMING
from polycast.dialects.web import websocket
from polycast.model import Buffer, Burst, Encoded, Encoder, Format, Slices

NAME = "ubre"

Before = Callable[[int], bytes]
"""From the size of a message to the bytes before it."""


class JsonEncoder(Encoder):
    name = NAME

    def __init__(self, before: Before, after: bytes) -> None:
        self._before = before
        self._after = after

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if burst.native is self:
            return pass_through(burst, slices)
        pieces: list[Buffer] = []
        before, close = self._before, b"}" + self._after
        for run, first, last in burst.runs(slices):
            head = b'{"publish":' + to_string(burst.topics[run].decode())
            for body in _bodies(burst, run, first, last):
                opening = head + b',"body":' if body else head
                pieces += (before(len(opening) + len(body) + 1), opening, body, close)
        joined = b"".join(pieces)
        return Encoded([joined], len(joined))


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


def _nothing(size: int) -> bytes:
    return b""


def _text_header(size: int) -> bytes:
    return websocket.header(websocket.TEXT, size)


def _binary_header(size: int) -> bytes:
    return websocket.header(websocket.BINARY, size)


JSON_LINES = JsonEncoder(_nothing, b"\n")
JSON_FRAMES = JsonEncoder(_text_header, b"")
BINARY_STREAM = BinaryEncoder(_nothing)
BINARY_FRAMES = BinaryEncoder(_binary_header)
