"""How the broker connects to others: the address decides what kind of transport it takes."""

from __future__ import annotations

import asyncio
import ssl

from polycast.address import SECURE, Address
from polycast.server import sockets
from polycast.server.connection import Connection

SHUTDOWN_SECONDS = 5.0
"""How long a peer may take to end TLS in its turn."""


async def dial(connection: Connection, address: Address, context: ssl.SSLContext | None = None) -> None:
    """Brings the connection up, or raises OSError and leaves nothing behind.

    `context` is for addresses that are encrypted: the certificate there must be for the host of the address.
    """
    loop = asyncio.get_running_loop()
    transport: asyncio.BaseTransport
    try:
        if address.scheme == "ipc":
            transport, _ = await loop.create_unix_connection(lambda: connection, address.path)
        else:
            tls = _context_for(address, context)
            patience = SHUTDOWN_SECONDS if tls else None
            transport, _ = await loop.create_connection(
                lambda: connection, address.host, address.port, ssl=tls, ssl_shutdown_timeout=patience
            )
    except BaseException:
        connection.discard()
        raise
    sock = transport.get_extra_info("socket")
    if sock is not None and address.scheme != "ipc":  # it may be lost already
        sockets.set_keepalive(sock)


def _context_for(address: Address, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    if address.scheme not in SECURE:
        return None
    if context is None:  # asyncio would take that for a connection that is not encrypted
        raise ValueError(f"no TLS context for {address}")
    return context
