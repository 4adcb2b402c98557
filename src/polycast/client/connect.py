"""From the name of a dialect to a connected client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from ipaddress import IPv6Address

from polycast.address import Address, parse_address, split_addresses
from polycast.client.async_client import AsyncClient
from polycast.client.blocking import Client
from polycast.client.credentials import take_credentials
from polycast.client.discovery import find_listener, is_http
from polycast.client.resume import Dial, Resume
from polycast.client.states import OnState
from polycast.dialects.client_session import ClientSession
from polycast.dialects.registry import DIALECTS as DECLARED
from polycast.dialects.registry import ROLES
from polycast.errors import UsageError

ADDRESS_EXAMPLES = {
    "tcp": "tcp://HOST:PORT",
    "tls": "tls://HOST:PORT",
    "ipc": "ipc:///path",
    "ws": "ws://HOST:PORT/path",
    "wss": "wss://HOST:PORT/path",
    "http": "http://HOST:PORT",
}
DIALECTS = {name: dialect.client for name, dialect in DECLARED.items() if dialect.client}


def connect(
    dialect: str,
    at: str | Iterable[str] = "",
    publishing: bool = False,
    timeout: float = 10.0,
    reconnect: bool = True,
    on_state: OnState = lambda change: None,
) -> Client:
    """A blocking client. `at` is an address, a host (with the default port), or empty for this machine.

    Several addresses, as a list or joined by commas, are tried in turn, at first and after a disconnect.

    With the address of the http listener, as in `http://broker:8080`, the client requests the address of the
    dialect's listener.
    """
    return Client(to_resume(dialect, at, publishing, reconnect, on_state), timeout)


async def connect_async(
    dialect: str,
    at: str | Iterable[str] = "",
    publishing: bool = False,
    timeout: float = 10.0,
    reconnect: bool = True,
    on_state: OnState = lambda change: None,
) -> AsyncClient:
    """An asyncio client: `async with await connect_async("hermod", publishing=True) as client: ...`"""
    return await AsyncClient.open(to_resume(dialect, at, publishing, reconnect, on_state), timeout)


def to_resume(
    dialect: str, at: str | Iterable[str], publishing: bool, reconnect: bool, on_state: OnState
) -> Resume:
    addresses = split_addresses(at) if isinstance(at, str) else list(at) or [""]
    dials: list[Dial] = [partial(to_client_session, dialect, each, publishing) for each in addresses]
    return Resume(dials, reconnect, on_state, dials_block=any(map(is_http, addresses)))


def to_client_session(name: str, at: str = "", publishing: bool = False) -> ClientSession:
    """The session of a client that is not connected yet, to check patterns and messages first.

    If `at` is the http listener of a broker, this requests the address of the dialect's listener.
    """
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect {name}", f"known are {', '.join(DIALECTS)}")
    client = DIALECTS[name]
    listener = client.publishers if publishing else client.subscribers
    default = parse_address(ROLES[listener].default)
    scheme, separator, _ = at.partition("://")
    if is_http(at):
        at = find_listener(at, listener)
    elif separator and scheme not in client.schemes:
        ways = ", ".join(ADDRESS_EXAMPLES[known] for known in (*client.schemes, "http"))
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
