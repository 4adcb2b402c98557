"""Clients for every dialect, blocking and asyncio."""

from polycast.client.async_client import AsyncClient
from polycast.client.blocking import Client
from polycast.client.connect import DIALECTS, connect, connect_async, to_client_session
from polycast.dialects.client_requests import NO_BODY, Handler, Response, from_body, to_body

__all__ = [
    "DIALECTS",
    "NO_BODY",
    "AsyncClient",
    "Client",
    "Handler",
    "Response",
    "connect",
    "connect_async",
    "from_body",
    "to_body",
    "to_client_session",
]
