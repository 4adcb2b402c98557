"""From the name of a dialect to a connected client."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address

from polycast.address import Address, parse_address
from polycast.client.async_client import AsyncClient
from polycast.client.blocking import Client
from polycast.client.credentials import take_credentials
from polycast.dialects.client_session import ClientSession
from polycast.dialects.registry import DIALECTS as DECLARED
from polycast.dialects.registry import ROLES
from polycast.errors import UsageError

FORMS = {
    "tcp": "tcp://HOST:PORT",
    "tls": "tls://HOST:PORT",
    "ipc": "ipc:///path",
    "ws": "ws://HOST:PORT/path",
    "wss": "wss://HOST:PORT/path",
}
DIALECTS = {name: dialect.client for name, dialect in DECLARED.items() if dialect.client}


def connect(dialect: str, at: str = "", publishing: bool = False, timeout: float = 10.0) -> Client:
    """A blocking client. `at` is an address, a host (with the default port), or empty for this machine."""
    return Client(to_client_session(dialect, at, publishing), timeout)


async def connect_async(
    dialect: str, at: str = "", publishing: bool = False, timeout: float = 10.0
) -> AsyncClient:
    """An asyncio client: `async with await connect_async("hermod", publishing=True) as client: ...`"""
    return await AsyncClient.open(to_client_session(dialect, at, publishing), timeout)


def to_client_session(name: str, at: str = "", publishing: bool = False) -> ClientSession:
    """The session of a client that is not connected yet, to check patterns and messages first."""
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect {name}", f"known are {', '.join(DIALECTS)}")
    client = DIALECTS[name]
    default = parse_address(ROLES[client.publishers if publishing else client.subscribers].default)
    scheme, separator, _ = at.partition("://")
    if separator and scheme not in client.schemes:
        ways = ", ".join(FORMS[known] for known in client.schemes)
        raise UsageError(f"{name} cannot use {scheme} addresses", f"write one of {ways}")
    address, credentials = take_credentials(_address(at, default))
    return client.session(address, publishing, credentials)


def _address(at: str, default: Address) -> Address:
    if not at:
        return default
    if ":" not in at or _is_ipv6(at):
        return replace(default, host=at.strip("[]"))
    return parse_address(at, "tcp")


def _is_ipv6(at: str) -> bool:
    """Whether `at` is a bare IPv6 address, not HOST:PORT."""
    try:
        IPv6Address(at[1:-1] if at.startswith("[") and at.endswith("]") else at)
    except ValueError:
        return False
    return True
