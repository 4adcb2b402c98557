"""The states of a connection, and the events that change them. The table of transitions is in `connection`."""

from __future__ import annotations

from enum import Enum, auto


class ConnectionState(Enum):
    OPEN = auto()
    INPUT_ENDED = auto()
    """Input is ignored: the peer half-closed, or a close waits for acks. Replies are still sent."""
    CLOSING = auto()
    """Input is ignored and output is discarded; the transport sends what it has buffered."""
    CLOSED = auto()


class ConnectionEvent(Enum):
    END_INPUT = auto()
    RESUME_INPUT = auto()
    """Events that were received before the input ended, and deferred, are handled now."""
    REJECT = auto()
    """No rights, or no connection slot. A TLS close would wait for the peer, with a file that no limit counts."""
    CLOSE = auto()
    """Send what is buffered, then close."""
    HALF_CLOSE = auto()
    """As `CLOSE`, but wait for the peer to close first."""
    SHUT_DOWN = auto()
    """The broker stops: as `HALF_CLOSE`, but subscriptions stay until the peer has closed."""
    DISCONNECT = auto()
    """Discard what is buffered."""
    ABORT = auto()
    """As `DISCONNECT`, but subscriptions stay until the transport has closed."""
    LOSE = auto()
    """The transport has closed."""
