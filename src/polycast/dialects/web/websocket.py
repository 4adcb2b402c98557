"""WebSocket (RFC 6455) without I/O, for the dialects that use it.

    FIN RSV opcode | MASK length | length's 0, 2 or 8 bytes | 4 bytes of mask, from clients only | payload

A scan reads messages in one frame, many at a time; fragments and control frames are read one by one. There is no
compression, so that one encoded frame serves every subscriber. For the same reason the broker sends no masks,
except where it dialled.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from polycast.dialects.framing import Reading
from polycast.dialects.session import Session, SessionContext
from polycast.dialects.web.frames import MASK_BYTES, MASKED, frames, mask
from polycast.errors import LimitError, PeerError, ProtocolError
from polycast.model import Block, Closing, Received, Reply

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN = 0x80
RESERVED_BITS = 0x70
PLAIN_STARTS = (b"\x81", b"\x82")
"""First bytes of frames that the scan can read."""
CONTROL_BYTES = 125
"""The longest payload of a control frame."""
REASON_BYTES = CONTROL_BYTES - 2

NORMAL, GOING_AWAY, BROKEN, UNACCEPTABLE, INVALID, POLICY, TOO_BIG = 1000, 1001, 1002, 1003, 1007, 1008, 1009
"""Close codes (7.4.1)."""
CLOSE_CODES = {*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)}
"""Codes that are valid in a close frame (7.4.2)."""


class WebSocketError(ProtocolError):
    """`code` is the code of the close frame."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Frames(NamedTuple):
    """Complete messages, in columns.

    The block has them as frames that a server can send unchanged; `bounds` are the start of each frame and the
    end of the last.
    """

    block: Block
    starts: Sequence[int]
    ends: Sequence[int]
    opcodes: bytes
    bounds: Sequence[int]

    def first(self, count: int) -> Frames:
        return Frames(
            self.block, self.starts[:count], self.ends[:count], self.opcodes[:count], self.bounds[: count + 1]
        )


class WebSocketSession(Session):
    """Reads frames; a subclass reads the messages."""

    dialect: str
    client = False
    """Whether this side dialled: then it sends with masks and receives without."""
    limit_setting = "limits.payload_bytes"
    """The setting that raises the limit of a message."""

    def __init__(self, context: SessionContext, message_limit: int) -> None:
        super().__init__(context)
        self._message_limit = message_limit
        self._opcode = CONTINUATION
        """The opcode of the fragmented message; CONTINUATION: there is none."""
        self._fragments = bytearray()
        self._pongs = bytearray()
        """Pongs for consecutive pings, which become one reply."""
        self._closed = False
        """Whether a close frame was received; further input is ignored."""

    @property
    def buffered_bytes(self) -> int:  # type: ignore[override]
        """The fragments of a message."""
        return len(self._fragments)

    def read_messages(self, frames: Frames, now: float, reading: Reading) -> None:
        """May raise any PeerError; events that were added before it remain.

        Text frames are not checked for UTF-8."""
        raise NotImplementedError

    def to_control(self, opcode: int, payload: bytes) -> bytes:
        return to_masked_frame(opcode, payload) if self.client else to_frame(opcode, payload)

    def closing_bytes(self, error: PeerError | None) -> bytes:
        return self.to_control(CLOSE, to_close(*_close_code(error)))

    def receive(self, block: Block, now: float) -> Received:
        reading = Reading(self.dialect)
        try:
            position, need = self._read(block, now, reading)
            self._add_pongs(reading)
            if self._closed:
                reading.add(Closing())
        except PeerError as error:
            position, need = len(block), 0
            self._add_pongs(reading)
            reading.add(Closing(error))
        return reading.close(position, need)

    def _read(self, block: Block, now: float, reading: Reading) -> tuple[int, int]:
        position = need = 0
        while not self._closed:
            if self._opcode == CONTINUATION and block[position : position + 1] in PLAIN_STARTS:
                position, need, unfinished = self._scan(block, position, now, reading)
                if unfinished:
                    return position, need
            after, need = self._read_odd(block, position, now, reading)
            if after == position:
                return position, need
            position = after
        return len(block), 0

    def _scan(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int, bool]:
        found, starts, ends, bounds, opcodes, position, need, unfinished = frames(
            block, position, not self.client, self._message_limit
        )
        if opcodes:
            self._add_pongs(reading)
            self.read_messages(Frames(found, starts, ends, opcodes, bounds), now, reading)
        return position, need, unfinished

    def _add_pongs(self, reading: Reading) -> None:
        if self._pongs:
            reading.add(Reply(bytes(self._pongs)))
            self._pongs = bytearray()

    # -- frames one by one -------------------------------------------------------------------------------

    def _read_odd(self, block: Block, position: int, now: float, reading: Reading) -> tuple[int, int]:
        """The position after one frame of any kind, or the same position and the length of the frame."""
        if len(block) - position < 2:
            return position, 0
        first, size = block[position], block[position + 1] & ~MASKED
        opcode, final = first & 15, first & FIN != 0
        self._check_head(first, block[position + 1])
        wide = 0 if size < 126 else 2 if size == 126 else 8
        start = position + 2 + wide + (0 if self.client else MASK_BYTES)
        if len(block) < start:
            return position, 0
        if wide:
            size = self._read_length(block[position + 2 : position + 2 + wide])
        if opcode < CLOSE:
            self._check_size(size)
        end = start + size
        if len(block) < end:
            return position, end - position
        payload = bytes(block[start:end])
        if not self.client:
            payload = mask(payload, block[start - MASK_BYTES : start])
        if opcode < CLOSE:
            self._handle_fragment(opcode, final, payload, now, reading)
        else:
            self._handle_control(opcode, payload, reading)
        return end, 0

    def _check_head(self, first: int, second: int) -> None:
        opcode, final, size = first & 15, first & FIN, second & ~MASKED
        if first & RESERVED_BITS:
            raise WebSocketError(BROKEN, "a frame with reserved bits set: no extension was agreed on")
        if opcode not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise WebSocketError(BROKEN, f"a frame of the unknown kind {opcode}")
        if (second & MASKED != 0) == self.client:
            raise WebSocketError(BROKEN, f"a frame {'with' if self.client else 'without'} a mask")
        if opcode >= CLOSE and (not final or size > CONTROL_BYTES):
            raise WebSocketError(BROKEN, f"a control frame in fragments or longer than {CONTROL_BYTES} bytes")
        if opcode < CLOSE and (opcode == CONTINUATION) != (self._opcode != CONTINUATION):
            out_of_place = "nothing to continue" if opcode == CONTINUATION else "a message inside a fragmented one"
            raise WebSocketError(BROKEN, out_of_place)

    def _read_length(self, digits: Block) -> int:
        size = int.from_bytes(digits, "big")
        if size < (126 if len(digits) == 2 else 1 << 16) or size >> 63:
            raise WebSocketError(
                BROKEN, f"a length of {size:,} in {len(digits)} bytes, which is not the shortest form"
            )
        return size

    def _check_size(self, size: int) -> None:
        whole = len(self._fragments) + size
        if whole > self._message_limit:
            raise LimitError("a message", whole, self._message_limit, self.limit_setting)

    def _handle_fragment(self, opcode: int, final: bool, payload: bytes, now: float, reading: Reading) -> None:
        self._opcode = opcode or self._opcode
        self._fragments += payload
        if final:
            opcode, self._opcode = self._opcode, CONTINUATION
            head = header(opcode, len(self._fragments))
            block = head + self._fragments
            self._fragments = bytearray()
            found = Frames(block, [len(head)], [len(block)], bytes([opcode]), [0, len(block)])
            self._add_pongs(reading)
            self.read_messages(found, now, reading)

    def _handle_control(self, opcode: int, payload: bytes, reading: Reading) -> None:
        if opcode == PING:
            self._pongs += self.to_control(PONG, payload)
        elif opcode == CLOSE:
            _check_close(payload)
            self._add_pongs(reading)
            reading.add(Reply(self.to_control(CLOSE, payload[:2])))
            self._closed = True


def _check_close(payload: bytes) -> None:
    if payload and (len(payload) < 2 or int.from_bytes(payload[:2], "big") not in CLOSE_CODES):
        raise WebSocketError(BROKEN, f"a close frame with the code {payload[:2].hex() or 'none'}")
    try:
        payload[2:].decode()
    except UnicodeDecodeError as error:
        raise WebSocketError(INVALID, "a close frame whose reason is not UTF-8") from error


def _close_code(error: PeerError | None) -> tuple[int, str]:
    if error is None:
        return GOING_AWAY, "the broker stops"
    if isinstance(error, WebSocketError):
        return error.code, str(error)
    return TOO_BIG if isinstance(error, LimitError) else POLICY, str(error)


# -- frames to send --------------------------------------------------------------------------------------


def header(opcode: int, size: int, masked: int = 0) -> bytes:
    if size < 126:
        return bytes((FIN | opcode, masked | size))
    if size < 1 << 16:
        return bytes((FIN | opcode, masked | 126)) + size.to_bytes(2, "big")
    return bytes((FIN | opcode, masked | 127)) + size.to_bytes(8, "big")


def to_frame(opcode: int, payload: bytes) -> bytes:
    return header(opcode, len(payload)) + payload


def to_masked_frame(opcode: int, payload: bytes) -> bytes:
    key = secrets.token_bytes(MASK_BYTES)
    return header(opcode, len(payload), MASKED) + key + mask(payload, key)


def to_close(code: int, reason: str) -> bytes:
    """The payload of a close frame; a long reason is cut."""
    return code.to_bytes(2, "big") + reason.encode()[:REASON_BYTES].decode(errors="ignore").encode()
