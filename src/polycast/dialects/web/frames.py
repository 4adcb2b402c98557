"""The scan of WebSocket frames (RFC 6455, 5.2): finds complete messages in a block and unmasks them.

    FIN RSV opcode | MASK length | length's 0, 2 or 8 bytes | 4 bytes of mask, from clients only | payload

A plain frame is a whole text or binary message with the right mask, a length in its shortest form and within the
limit. The scan stops at the first frame that is not plain: the session reads fragments, control frames and
errors. The C version (`_frames.pyx`) takes 20 ns a frame; Python takes 2,700. A test checks that both return the
same.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from polycast.model import Block

FrameScan = tuple[Block, Sequence[int], Sequence[int], Sequence[int], bytes, int, int, bool]
"""block, starts, ends, bounds, opcodes, position, need, unfinished.

`block` has the frames as a server sends them, without masks. `starts` and `ends` are the bounds of their payloads
in it, `bounds` the start of each frame and the end of the last. `position` is where the scan stopped in its
input, `unfinished` whether more bytes could complete a plain frame there, and `need` its length, or 0 if it is
unknown."""

PLAIN = (0x81, 0x82)
MASKED = 0x80
MASK_BYTES = 4
ODD = -1
UNKNOWN = 0


def frames_in_python(block: Block, position: int, masked: bool, limit: int) -> FrameScan:
    starts, ends, bounds, opcodes = array("q"), array("q"), array("q"), bytearray()
    out = bytearray()
    shift = 0 if masked else position
    while True:
        header, size = _read_plain(block, position, masked, limit)
        after = position + header + size
        if header in (ODD, UNKNOWN) or after > len(block):
            break
        bounds.append(len(out) + shift)
        opcodes.append(block[position] & 15)
        start = position + header
        if masked:
            out += block[position : start - MASK_BYTES]
            out[bounds[-1] + 1] &= ~MASKED
            starts.append(len(out))
            out += mask_in_python(block[start:after], block[start - MASK_BYTES : start])
        else:
            starts.append(start)
            out += block[position:after]
        ends.append(starts[-1] + size)
        position = after
    bounds.append(len(out) + shift)
    need = header + size if header > 0 else 0
    found = bytes(out) if masked else block
    return found, starts, ends, bounds, bytes(opcodes), position, need, header != ODD


def _read_plain(block: Block, position: int, masked: bool, limit: int) -> tuple[int, int]:
    """The sizes of header and payload of the plain frame at `position`, or ODD, or UNKNOWN if it is too short."""
    there = len(block) - position
    if there < 2:
        return UNKNOWN, 0
    if block[position] not in PLAIN or (block[position + 1] & MASKED != 0) != masked:
        return ODD, 0
    size = block[position + 1] & ~MASKED
    wide = 0 if size < 126 else 2 if size == 126 else 8
    header = 2 + wide + MASK_BYTES * masked
    if there < header:
        return UNKNOWN, 0
    if wide:
        size = int.from_bytes(block[position + 2 : position + 2 + wide], "big")
    shortest = size >= {0: 0, 2: 126, 8: 1 << 16}[wide]
    return (header, size) if shortest and size <= limit else (ODD, 0)


def mask_in_python(data: Block, key: Block) -> bytes:
    """Masks or unmasks: the same operation."""
    size = len(data)
    keys = (bytes(key) * (size // MASK_BYTES + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(size, "little")


try:
    from polycast.dialects.web import _frames
except ImportError:
    COMPILED = False
    frames, mask = frames_in_python, mask_in_python
else:
    COMPILED = True
    frames, mask = _frames.frames, _frames.mask
