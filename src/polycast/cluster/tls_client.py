"""A client of NATS that insists on TLS.

nats-py encrypts a connection only if the server asks for it, also with a `tls://` address. A server without TLS,
or a peer that removes this from the first line, would get the user and the password in plain text.
"""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError


class NoTlsError(NatsError):
    def __str__(self) -> str:
        return "the server does not offer TLS"


class TlsClient(Client):
    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Called with the first line of the server, before anything is sent, at every connect and reconnect."""
        if initial_connection:
            if not info.get("tls_required") and not info.get("tls_available"):
                raise NoTlsError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
