"""Settings that can change at runtime: certificates, access rules, tokens, and limits that are read on each use.

All files are read and checked first: an invalid one is logged, and nothing changes.
A connection that lost its rights, or the right to one of its subscriptions, is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields, replace

from polycast.errors import PolycastError
from polycast.server.exposure import find_warnings
from polycast.server.io.dial import warn_of_peers_without_rights
from polycast.server.io.rate_limiter import RateLimiter
from polycast.server.io.tls import to_context, to_dial_context
from polycast.server.server import Server
from polycast.server.settings import TABLES, Settings

log = logging.getLogger("polycast.server")

LIMITS = (
    "connections",
    "connections_per_address",
    "subscriptions",
    "handshake_seconds",
    "frame_seconds",
    "http_idle_seconds",
    "idle_seconds",
    "stall_seconds",
    "ack_seconds",
    "reads",
    "read_seconds",
    "shutdown_seconds",
)
"""Limits that apply to all connections as soon as they change."""


def reload(server: Server, read: Callable[[], Settings]) -> None:
    try:
        wanted = read()
        context = to_context(wanted.tls) if wanted.tls.certificate else None
        dial_context = to_dial_context(wanted.tls) if server.core.settings.dials_securely else None
        server.access.reread()
    except PolycastError as error:
        log.error("not reloaded, all stays as it was: %s", error)
        return
    if context:
        server.show_certificate(context)
    server.dial_context = dial_context
    limits = {name: getattr(wanted.limits, name) for name in LIMITS}
    before = server.core.settings
    server.core.settings = replace(
        before, limits=replace(before.limits, **limits), access=wanted.access, tls=wanted.tls
    )
    _apply(server)
    log.info("reloaded")
    for warning in find_warnings(server.core.settings):
        log.log(warning.level, "%s", warning)
    if later := _differing(server.core.settings, wanted):
        log.warning("these change with the next start: %s", ", ".join(later))


def _apply(server: Server) -> None:
    settings, core = server.core.settings, server.core
    server.limit_connections(settings.limits)
    core.subscriptions.limit = settings.limits.subscriptions
    if core.log_parts:
        core.log_parts.replays.readers.limit(settings.limits.reads, settings.limits.read_seconds)
    waits = core.publishing.slowed
    core.publishing.rates = (
        RateLimiter(settings.access, core.budget, waits) if settings.access.paced or waits else None
    )
    server.access.adopt(settings.access)
    warn_of_peers_without_rights(server.access, settings)
    server.review_all()


def _differing(now: Settings, wanted: Settings) -> list[str]:
    tables = [table for table in ("listen", "connect") if getattr(now, table) != getattr(wanted, table)]
    for table, cls in TABLES.items():
        old, new = getattr(now, table), getattr(wanted, table)
        tables += [f"{table}.{f.name}" for f in fields(cls) if getattr(old, f.name) != getattr(new, f.name)]
    return tables
