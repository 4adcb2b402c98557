"""Seeds, and what becomes of them: the vectors of a role, cut, glued, repeated and damaged."""

from __future__ import annotations

import os
from functools import cache

from hypothesis import strategies as st

from vectors import input_vectors

EXAMPLES = int(os.environ.get("POLYCAST_FUZZ", "25"))
LONGEST_BYTES = 4096

UPGRADE = (
    b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%b\r\n"
)
SP_HEADER = b"\x00SP\x00\x00%b\x00\x00"

DOORS: dict[str, list[bytes]] = {
    "http": [
        b"",
        UPGRADE % (b"/ubre", b""),
        UPGRADE % (b"/ubre?publishes=a,b", b""),
        UPGRADE % (b"/", b"Sec-WebSocket-Protocol: pub.sp.nanomsg.org\r\n"),
        UPGRADE % (b"/", b"Sec-WebSocket-Protocol: sub.sp.nanomsg.org\r\n"),
    ],
    "nanomsg.pub": [b"", SP_HEADER % b"\x21"],
    "nanomsg.sub": [b"", SP_HEADER % b"\x20"],
}
"""What a peer may say first, so that what follows gets deeper than the door."""

BYTES = st.binary(max_size=40)


def masked(opcode: int, payload: bytes, final: bool = True) -> bytes:
    """A small client frame of WebSocket, its mask all zero."""
    size = min(len(payload), 125)
    return bytes([opcode | (0x80 if final else 0), 0x80 | size, 0, 0, 0, 0]) + payload[:size]


@cache
def seeds(role: str) -> list[bytes]:
    """Valid input for this role, without the handshake."""
    found = [v.input for v in input_vectors() if v.role == role and len(v.input) <= LONGEST_BYTES]
    if role == "http":
        ubre = [v.input for v in input_vectors() if v.role == "ubre" and len(v.input) <= 125]
        found += [masked(opcode, data) for data in ubre for opcode in (1, 2)]
        found += [masked(opcode, b"\x03\xe8") for opcode in range(16)]
    return found


def damaged(seed: bytes) -> st.SearchStrategy[bytes]:
    """The seed with a stretch of it replaced by something else."""

    def replace(first: int, size: int, other: bytes) -> bytes:
        start = first % (len(seed) + 1)
        return seed[:start] + other + seed[start + size :]

    return st.builds(replace, st.integers(0, LONGEST_BYTES), st.integers(0, 8), BYTES)


def inputs(role: str) -> st.SearchStrategy[list[bytes]]:
    """What one peer says, in the pieces in which it arrives."""
    known = seeds(role)
    seed = st.integers(0, len(known) - 1).map(lambda number: known[number])
    piece = st.one_of(seed, seed.flatmap(damaged), st.tuples(seed, seed).map(b"".join), BYTES)
    door = st.sampled_from(DOORS.get(role, [b""]))
    return st.tuples(door, st.lists(piece, max_size=12)).map(lambda text: [text[0], *text[1]])
