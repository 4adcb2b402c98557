"""Messages as PUB sockets send them, over tcp, ipc and WebSocket; `session` has the frames."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from struct import Struct

from polycast.dialects.framing import pass_through
from polycast.dialects.scan import SIZE, TYPE
from polycast.dialects.web.websocket import BINARY, header, to_masked_frame
from polycast.model import Buffer, Burst, Encoded, Encoder, Slices

NAME = "nanomsg"
TYPED_SIZE = Struct(">BQ")


class NanomsgEncoder(Encoder):
    name = NAME

    def __init__(self, head: Callable[[int], bytes], separator: bytes) -> None:
        self._head = head
        self._separator = separator

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        if burst.native is self:
            return pass_through(burst, slices)
        pieces: list[Buffer] = []
        view = memoryview(burst.block)
        for run, first, last in burst.runs(slices):
            name = self._to_name(burst.topics[run])
            size, head = -1, b""
            for i in range(first, last):
                begin, end = burst.starts[i], burst.ends[i]
                if end - begin != size:  # most messages have the size of the one before
                    size = end - begin
                    head = self._head(len(name) + size) + name
                pieces += (head, view[begin:end])
        joined = b"".join(pieces)
        return Encoded([joined], len(joined))

    def _to_name(self, topic: bytes) -> bytes:
        return topic + self._separator if topic else b""


class MaskedEncoder(NanomsgEncoder):
    """For a WebSocket that the broker dialled. Each frame has its own mask, so none can be passed through."""

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        frames: list[Buffer] = []
        for run, first, last in burst.runs(slices):
            name = self._to_name(burst.topics[run])
            for i in range(first, last):
                body = name + burst.block[burst.starts[i] : burst.ends[i]]
                frames.append(to_masked_frame(BINARY, body))
        joined = b"".join(frames)
        return Encoded([joined], len(joined))


HEADS: dict[str, Callable[[int], bytes]] = {
    "tcp": SIZE.pack,
    "ipc": partial(TYPED_SIZE.pack, TYPE[0]),
    "ws": partial(header, BINARY),
}
"""The bytes before a body of a given size, by the scheme of the address."""


@cache
def encoder_of(scheme: str, separator: str, masked: bool = False) -> NanomsgEncoder:
    return (MaskedEncoder if masked else NanomsgEncoder)(HEADS[scheme], separator.encode())
