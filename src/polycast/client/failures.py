"""What both kinds of client say when a broker cannot be reached, leaves, or keeps silent."""

from __future__ import annotations

import ssl

from polycast.address import Address
from polycast.dialects.client_session import ClientSession
from polycast.errors import RemoteError, UsageError

READ_BYTES = 256 * 1024
ACK_SECONDS = 60.0
"""How long a broker that reads slowly, because others must catch up, is waited for."""
NOTICE_SECONDS = 0.1
"""How long a broker that acknowledges nothing is given to hang up on what it does not take.

After it, a broker that hangs up looks like one that has read everything and closes in turn.
"""
LEAST_SECONDS = 0.001
"""A socket takes 0 for something else than a short time."""
MOST_SECONDS = 1e6
"""More than a week. Not every number of seconds is one that the system can wait for."""


def to_seconds(timeout: float) -> float:
    if not timeout >= 0:  # as NaN is not
        raise UsageError(f"nobody can wait for {timeout} seconds")
    return min(max(timeout, LEAST_SECONDS), MOST_SECONDS)


def unreachable(address: Address, error: OSError) -> RemoteError:
    hint = "is a broker running there? 'polycast serve' starts one"
    if isinstance(error, ssl.SSLError):
        hint = "is that its tls address, and ca=FILE behind a '?', or POLYCAST_CA, who has signed its certificate?"
    return RemoteError(f"cannot reach {address}: {_reason(error)}", hint)


def closed(session: ClientSession) -> RemoteError:
    return RemoteError(f"{session.address}: this client is closed", "connect() makes another")


def lost(session: ClientSession, error: OSError) -> RemoteError:
    """What the broker said last explains more than how the connection ended."""
    what = ", some messages may be lost" if session.unacknowledged else ""
    return session.failure or session.refusal or RemoteError(f"{session.address}: {_reason(error)}{what}")


def silent(session: ClientSession, seconds: float) -> RemoteError:
    return RemoteError(f"{session.address}: no answer within {seconds:g} s", session.hint())


def _reason(error: OSError) -> str:
    return "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
