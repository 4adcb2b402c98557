"""By when a peer must have said something, and when nothing more is expected of it."""

from __future__ import annotations

from polycast.server.io.connection import Connection
from polycast.server.settings import LimitSettings


def timeout_reason(connection: Connection, limits: LimitSettings, now: float) -> str:
    """What the peer did not say in time; empty: nothing."""
    session, held = connection.session, connection.session.withheld_bytes
    if not session.handshake_done and now - connection.opened_at >= limits.handshake_seconds:
        return f"no handshake within {limits.handshake_seconds:g} s (limits.handshake_seconds)"
    on_trial = connection.trial_since and not session.requests_served
    if on_trial and now - connection.trial_since >= limits.handshake_seconds:
        return f"no identity with rights within {limits.handshake_seconds:g} s (limits.handshake_seconds)"
    if held and limits.ack_seconds and now - connection.touched_at >= limits.ack_seconds:
        return f"acknowledged nothing for {limits.ack_seconds:g} s while {held:,} bytes wait (limits.ack_seconds)"
    return ""


def is_idle_http(connection: Connection, limits: LimitSettings, now: float) -> bool:
    """Whether a peer on the http port has made no request for so long that none is expected."""
    if connection.trial_since:
        return now - connection.trial_since >= limits.handshake_seconds
    return 0 < limits.http_idle_seconds <= now - connection.touched_at and not connection.queued()
