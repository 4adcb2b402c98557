"""Clients for every dialect, blocking and asyncio."""

from polycast.client.async_client import AsyncClient
from polycast.client.blocking import Client
from polycast.client.connect import DIALECTS, connect, connect_async, to_client_session
from polycast.client.states import State, StateChange
from polycast.dialects.client_requests import NO_BODY, Handler, Response, from_body, to_body
from polycast.model import Body

__all__ = [
    "DIALECTS",
    "NO_BODY",
    "AsyncClient",
    "Body",
    "Client",
    "Handler",
    "Response",
    "State",
    "StateChange",
    "connect",
    "connect_async",
    "from_body",
    "to_body",
    "to_client_session",
]
