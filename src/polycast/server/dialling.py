"""How the broker connects to others: the address decides what kind of transport it takes."""

from __future__ import annotations

import asyncio

from polycast.address import Address
from polycast.server import sockets
from polycast.server.connection import Connection


async def dial(connection: Connection, address: Address) -> None:
    """Brings the connection up, or raises OSError and leaves nothing behind."""
    loop = asyncio.get_running_loop()
    transport: asyncio.BaseTransport
    try:
        if address.scheme == "ipc":
            transport, _ = await loop.create_unix_connection(lambda: connection, address.path)
        else:
            transport, _ = await loop.create_connection(lambda: connection, address.host, address.port)
    except BaseException:
        connection.discard()
        raise
    sock = transport.get_extra_info("socket")
    if sock is not None and address.scheme != "ipc":  # it may be lost already
        sockets.set_keepalive(sock)
