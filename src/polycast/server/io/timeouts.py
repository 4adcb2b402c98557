"""Time limits of a connection: handshake, token, acks of the peer, idle HTTP."""

from __future__ import annotations

from polycast.server.io.connection import Connection
from polycast.server.settings import LimitSettings


def timeout_reason(connection: Connection, limits: LimitSettings, now: float) -> str:
    """The time limit that the peer exceeded; empty: none."""
    session, held = connection.session, connection.session.withheld_bytes
    if not session.handshake_done and now - connection.opened_at >= limits.handshake_seconds:
        return f"no handshake within {limits.handshake_seconds:g} s (limits.handshake_seconds)"
    unauthorized = connection.unauthorized_since and not session.requests_served
    if unauthorized and now - connection.unauthorized_since >= limits.handshake_seconds:
        return f"no token with rights within {limits.handshake_seconds:g} s (limits.handshake_seconds)"
    if held and limits.ack_seconds and now - connection.touched_at >= limits.ack_seconds:
        return f"no ack for {limits.ack_seconds:g} s while {held:,} bytes are withheld (limits.ack_seconds)"
    return ""


def is_idle_http(connection: Connection, limits: LimitSettings, now: float) -> bool:
    """Whether a peer on the http port has made no request for too long."""
    if connection.unauthorized_since:
        return now - connection.unauthorized_since >= limits.handshake_seconds
    return 0 < limits.http_idle_seconds <= now - connection.touched_at and not connection.queued()
