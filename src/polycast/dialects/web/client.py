"""The client's side of a WebSocket, for the dialects that use one."""

from __future__ import annotations

from polycast.address import Address
from polycast.dialects.framing import Reading
from polycast.dialects.web.websocket import (
    CLOSE,
    GOING_AWAY,
    NORMAL,
    PONG,
    WebSocketSession,
    to_close,
    to_masked_frame,
)
from polycast.errors import RefusedError

NO_STATUS = 1005
"""The code of a close frame without a payload (RFC 6455, 7.4.1)."""


class WebSocketClient(WebSocketSession):
    """A session that dialled. It also counts pongs and remembers the close frame of the broker."""

    client = True
    close_payload: bytes | None = None
    _pongs_received = 0

    def take_pongs(self) -> int:
        """The number of pongs since the last call."""
        taken, self._pongs_received = self._pongs_received, 0
        return taken

    def _handle_control(self, opcode: int, payload: bytes, reading: Reading) -> None:
        self._pongs_received += opcode == PONG
        if opcode == CLOSE:
            self.close_payload = payload
        super()._handle_control(opcode, payload, reading)


def to_close_frame() -> bytes:
    return to_masked_frame(CLOSE, to_close(NORMAL, ""))


def to_refusal(close_payload: bytes | None, address: Address) -> RefusedError | None:
    """The error of a close frame; None for an orderly close."""
    if close_payload is None:
        return None
    code = int.from_bytes(close_payload[:2], "big") or NO_STATUS
    if code in (NORMAL, GOING_AWAY, NO_STATUS):
        return None
    return RefusedError(f"{address}: refused: {code} {close_payload[2:].decode()}", code)
