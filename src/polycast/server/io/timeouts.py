"""Time limits of a connection: handshake, token, acks of the peer, idle HTTP."""

from __future__ import annotations

import time

from polycast.server.io.connection import Connection
from polycast.server.settings import LimitSettings

SLOWEST_BODY = 1024
"""Bytes per second of the body of an HTTP request, on average, once `limits.frame_seconds` have passed."""


def timeout_reason(connection: Connection, limits: LimitSettings, now: float) -> str:
    """The time limit that the peer exceeded; empty: none."""
    session, held = connection.session, connection.session.withheld_bytes
    if not session.handshake_done and now - connection.opened_at >= limits.handshake_seconds:
        return f"no handshake within {limits.handshake_seconds:g} s (limits.handshake_seconds)"
    unauthorized = connection.unauthorized_since and not session.requests_served
    if unauthorized and now - connection.unauthorized_since >= limits.handshake_seconds:
        return f"no token with rights within {limits.handshake_seconds:g} s (limits.handshake_seconds)"
    if session.body_since and limits.frame_seconds and _is_body_late(connection, limits.frame_seconds):
        return f"a body slower than {SLOWEST_BODY} bytes/s after {limits.frame_seconds:g} s (limits.frame_seconds)"
    if held and limits.ack_seconds and now - connection.touched_at >= limits.ack_seconds:
        return f"no ack for {limits.ack_seconds:g} s while {held:,} bytes are withheld (limits.ack_seconds)"
    return ""


def is_idle_http(connection: Connection, limits: LimitSettings, now: float) -> bool:
    """Whether a peer of the http listener has made no request for too long."""
    if connection.unauthorized_since:
        return now - connection.unauthorized_since >= limits.handshake_seconds
    return 0 < limits.http_idle_seconds <= now - connection.touched_at and not connection.queued()


def _is_body_late(connection: Connection, seconds: float) -> bool:
    """The time for which the broker itself pauses the connection does not count."""
    session, now = connection.session, time.time()
    if connection.listener.budget.has_paused(connection):
        session.body_since = now - connection.partial_bytes() / SLOWEST_BODY
    return now - session.body_since >= seconds + connection.partial_bytes() / SLOWEST_BODY
