"""What the client's sides that travel over WebSocket have in common."""

from __future__ import annotations

from polycast.address import Address
from polycast.dialects.base import Reading
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

FAREWELL = to_close(NORMAL, "")
NO_REASON = 1005
"""The code of a close frame that has none."""


class Attentive(WebSocketSession):
    """The side that dialled, and counts and remembers what a broker has no use for."""

    client = True
    goodbye: bytes | None = None
    _pongs_heard = 0

    def take_pongs(self) -> int:
        """How many have come since they were counted last."""
        taken, self._pongs_heard = self._pongs_heard, 0
        return taken

    def _handle_control(self, opcode: int, payload: bytes, reading: Reading) -> None:
        self._pongs_heard += opcode == PONG
        if opcode == CLOSE:
            self.goodbye = payload
        super()._handle_control(opcode, payload, reading)


def to_farewell() -> bytes:
    return to_masked_frame(CLOSE, FAREWELL)


def to_refusal(goodbye: bytes | None, address: Address) -> RefusedError | None:
    """Why the broker closed, unless it just stops."""
    if goodbye is None:
        return None
    code = int.from_bytes(goodbye[:2], "big") or NO_REASON
    if code in (NORMAL, GOING_AWAY, NO_REASON):
        return None
    return RefusedError(f"{address}: refused: {code} {goodbye[2:].decode()}", code)
