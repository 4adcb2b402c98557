"""What both kinds of client say when a broker cannot be reached, leaves, or keeps silent."""

from __future__ import annotations

from polycast.address import Address
from polycast.client.side import Side
from polycast.errors import RemoteError

READ_BYTES = 256 * 1024
ACK_SECONDS = 60.0
"""How long a broker that reads slowly, because others must catch up, is waited for."""


def unreachable(address: Address, error: OSError) -> RemoteError:
    hint = "is a broker running there? start one with 'polycast serve', or name another with --at"
    return RemoteError(f"cannot reach {address}: {_reason(error)}", hint)


def lost(side: Side, error: OSError) -> RemoteError:
    """What the broker said last explains more than how the connection ended."""
    what = ", some messages may be lost" if side.unconfirmed else ""
    return side.broken or side.goodbye or RemoteError(f"{side.address}: {_reason(error)}{what}")


def silent(side: Side, seconds: float) -> RemoteError:
    return RemoteError(f"{side.address}: no answer within {seconds:g} s", side.hint())


def _reason(error: OSError) -> str:
    return "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
