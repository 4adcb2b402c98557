"""Dialling: open a transport to an address, and warn about configured peers that have no rights."""

from __future__ import annotations

import asyncio
import logging
import ssl
from ipaddress import ip_address

from polycast.address import SECURE, Address, parse_address
from polycast.dialects.registry import ROLES
from polycast.server.access.access_control import AccessControl, ConnectionGuard
from polycast.server.io import sockets
from polycast.server.io.connection import Connection
from polycast.server.settings import Settings

log = logging.getLogger("polycast.links")

PEER = "simplest.peer"
SHUTDOWN_SECONDS = 5.0
"""How long a peer may take to complete the TLS shutdown."""


async def dial(connection: Connection, address: Address, context: ssl.SSLContext | None = None) -> None:
    """Open the connection, or raise OSError and release it.

    `context` is for TLS addresses: the server's certificate must match the host of the address.
    """
    loop = asyncio.get_running_loop()
    transport: asyncio.BaseTransport
    try:
        if address.scheme == "ipc":
            transport, _ = await loop.create_unix_connection(lambda: connection, address.path)
        else:
            tls = _context_for(address, context)
            shutdown = SHUTDOWN_SECONDS if tls else None
            transport, _ = await loop.create_connection(
                lambda: connection, address.host, address.port, ssl=tls, ssl_shutdown_timeout=shutdown
            )
    except BaseException:
        connection.connection_lost(None)  # uvloop may not report it when the peer resets early
        raise
    sock = transport.get_extra_info("socket")
    if sock is not None and address.scheme != "ipc":  # None: the connection is lost already
        sockets.set_keepalive(sock)


def _context_for(address: Address, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    if address.scheme not in SECURE:
        return None
    if context is None:  # asyncio would connect without TLS
        raise ValueError(f"no TLS context for {address}")
    return context


def warn_of_peers_without_rights(access: AccessControl, settings: Settings) -> None:
    """Log the configured addresses whose servers have no rights, because no rule names their identity."""
    dialled = [(PEER, text) for text in settings.simplest.peers]
    dialled += [(role, text) for role, texts in settings.connect.items() for text in texts]
    for role, text in dialled:
        identity = _expected_identity(access, parse_address(text, "tcp"))
        if identity and ConnectionGuard(access, identity, ROLES[role].dialect, configured=True).has_no_rights:
            hint = f"add a rule such as '{identity} may everything'"
            log.warning("%s %s: %s has no rights; %s", role, text, identity, hint)


def _expected_identity(access: AccessControl, address: Address) -> str:
    """Empty where the identity is known only when connected: by a certificate, or by the address of a host."""
    if address.scheme == "ipc":
        return access.identify_dialled(None, None, announced=False)
    host = "127.0.0.1" if address.host == "localhost" else address.host
    try:
        known = address.scheme not in SECURE and bool(ip_address(host))
    except ValueError:
        known = False
    return access.identify_dialled(host, None, announced=False) if known else ""
