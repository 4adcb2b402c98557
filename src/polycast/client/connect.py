"""From a dialect's name to a client that is connected."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address
from typing import NamedTuple

from polycast.address import WEB, Address, parse_address
from polycast.client.awaiting import AsyncClient
from polycast.client.blocking import Client
from polycast.client.fanout import FanoutSide
from polycast.client.hermod import HermodSide
from polycast.client.nanomsg import NanomsgSide
from polycast.client.side import Side
from polycast.client.simplest import SimplestSide
from polycast.client.ubre import UbreSide
from polycast.dialects.registry import ROLES
from polycast.errors import UsageError

FORMS = {
    "tcp": "tcp://HOST:PORT",
    "tls": "tls://HOST:PORT",
    "ipc": "ipc:///path",
    "ws": "ws://HOST:PORT/path",
    "wss": "wss://HOST:PORT/path",
}
STREAMS = ("tcp", "tls", "ipc")


class Dialect(NamedTuple):
    side: type[Side]
    publishers: str
    """The listener that publishers go to."""
    subscribers: str
    schemes: tuple[str, ...] = STREAMS


DIALECTS = {
    "simplest": Dialect(SimplestSide, "simplest", "simplest"),
    "hermod": Dialect(HermodSide, "hermod.pub", "hermod.sub"),
    "fanout": Dialect(FanoutSide, "fanout.controller", "fanout.client"),
    "nanomsg": Dialect(NanomsgSide, "nanomsg.sub", "nanomsg.pub", STREAMS + WEB),
    "ubre": Dialect(UbreSide, "http", "http", STREAMS + WEB),
}


def connect(dialect: str, at: str = "", publishing: bool = False, timeout: float = 10.0) -> Client:
    """A blocking client. `at` is an address, or a host whose default port is meant, or empty for this machine."""
    return Client(to_side(dialect, at, publishing), timeout)


async def connect_async(
    dialect: str, at: str = "", publishing: bool = False, timeout: float = 10.0
) -> AsyncClient:
    """An asyncio client: `async with await connect_async("hermod", publishing=True) as client: ...`"""
    return await AsyncClient.open(to_side(dialect, at, publishing), timeout)


def to_side(name: str, at: str = "", publishing: bool = False) -> Side:
    """What a client is made of. Nothing is connected yet, so that usage can be checked before anything is."""
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect {name}", f"known are {', '.join(DIALECTS)}")
    dialect = DIALECTS[name]
    default = parse_address(ROLES[dialect.publishers if publishing else dialect.subscribers].default)
    scheme, separator, _ = at.partition("://")
    if separator and scheme not in dialect.schemes:
        ways = ", ".join(FORMS[known] for known in dialect.schemes)
        raise UsageError(f"{name} is not spoken over {scheme}", f"write one of {ways}")
    return dialect.side(_address(at, default), publishing)


def _address(at: str, default: Address) -> Address:
    if not at:
        return default
    if ":" not in at or _is_ipv6(at):
        return replace(default, host=at.strip("[]"))
    return parse_address(at, "tcp")


def _is_ipv6(at: str) -> bool:
    """Whether it is a host alone, which looks as if a port were behind its last colon."""
    try:
        IPv6Address(at[1:-1] if at.startswith("[") and at.endswith("]") else at)
    except ValueError:
        return False
    return True
