"""Errors and timeouts that both clients share."""

from __future__ import annotations

import ssl

from polycast.address import Address
from polycast.dialects.client_session import ClientSession
from polycast.errors import RefusedError, RemoteError, ReplyTimeoutError, UsageError

READ_BYTES = 256 * 1024
ACK_SECONDS = 60.0
"""How long a client waits for acknowledgements under backpressure."""
NOTICE_SECONDS = 0.1
"""How long `close` waits for a refusal, in a dialect without acknowledgements.

After it, a broker that refuses looks like one that has read everything and closes in turn.
"""
LEAST_SECONDS = 0.001
"""A timeout of 0 makes a socket non-blocking."""
PASSING = (500, 503, 507, 1011, 1012, 1013)
"""Codes of hermod and of WebSockets: the broker stops, or cannot go on for a reason of its own."""
MOST_SECONDS = 1e6
"""More than a week; the system does not accept every number of seconds."""


def to_seconds(timeout: float) -> float:
    if not timeout >= 0:  # NaN included
        raise UsageError(f"{timeout} seconds is no timeout")
    return min(max(timeout, LEAST_SECONDS), MOST_SECONDS)


def unreachable(address: Address, error: OSError) -> RemoteError:
    hint = "is a broker running there? 'polycast serve' starts one"
    if isinstance(error, ssl.SSLError):
        hint = "is that its tls address, and does ca=FILE behind a '?', or POLYCAST_CA, name its authority?"
    return RemoteError(f"cannot reach {address}: {_reason(error)}", hint)


def closed(session: ClientSession) -> RemoteError:
    return RemoteError(f"{session.address}: this client is closed", "connect() makes another")


def lost(session: ClientSession, error: OSError) -> RemoteError:
    """A refusal or a protocol error explains more than the error of the connection."""
    what = ", some messages may be lost" if session.unacknowledged else ""
    return session.failure or session.refusal or RemoteError(f"{session.address}: {_reason(error)}{what}")


def silent(session: ClientSession, seconds: float) -> ReplyTimeoutError:
    return ReplyTimeoutError(f"{session.address}: no reply within {seconds:g} s", session.hint())


def no_message(session: ClientSession, seconds: float) -> ReplyTimeoutError:
    return ReplyTimeoutError(f"{session.address}: no message within {seconds:g} s")


def no_broker(address: Address, seconds: float, error: RemoteError | None) -> ReplyTimeoutError:
    why = f": {error}" if error else ""
    return ReplyTimeoutError(f"{address}: not connected within {seconds:g} s{why}", error.hint if error else "")


def passes(error: RemoteError) -> bool:
    """Whether the same may succeed on another connection: the broker is gone or stops, and refused nothing."""
    return not isinstance(error, RefusedError) or error.code in PASSING


def _reason(error: OSError) -> str:
    return "no reply" if isinstance(error, TimeoutError) else error.strerror or str(error)
