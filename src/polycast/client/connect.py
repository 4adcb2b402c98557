"""From a dialect's name to a client that is connected."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from polycast.address import Address, parse_address
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


class Dialect(NamedTuple):
    side: type[Side]
    publishers: str
    """The listener that publishers go to."""
    subscribers: str
    schemes: tuple[str, ...] = ("tcp", "ipc")


DIALECTS = {
    "simplest": Dialect(SimplestSide, "simplest", "simplest"),
    "hermod": Dialect(HermodSide, "hermod.pub", "hermod.sub"),
    "fanout": Dialect(FanoutSide, "fanout.controller", "fanout.client"),
    "nanomsg": Dialect(NanomsgSide, "nanomsg.sub", "nanomsg.pub", ("tcp", "ipc", "ws")),
    "ubre": Dialect(UbreSide, "http", "http", ("tcp", "ipc", "ws")),
}


def connect(dialect: str, at: str = "", publishing: bool = False, timeout: float = 10.0) -> Client:
    """A blocking client. `at` is an address, or a host whose default port is meant, or empty for this machine."""
    return Client(_side(dialect, at, publishing), timeout)


async def connect_async(
    dialect: str, at: str = "", publishing: bool = False, timeout: float = 10.0
) -> AsyncClient:
    """An asyncio client: `async with await connect_async("hermod", publishing=True) as client: ...`"""
    return await AsyncClient.open(_side(dialect, at, publishing), timeout)


def _side(name: str, at: str, publishing: bool) -> Side:
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect {name}", f"known are {', '.join(DIALECTS)}")
    dialect = DIALECTS[name]
    default = parse_address(ROLES[dialect.publishers if publishing else dialect.subscribers].default)
    address = _address(at, default)
    if address.scheme not in dialect.schemes:
        raise UsageError(f"{name} is not spoken over {address.scheme}", f"known are {', '.join(dialect.schemes)}")
    return dialect.side(address, publishing)


def _address(at: str, default: Address) -> Address:
    if not at:
        return default
    if ":" not in at:
        return replace(default, host=at)
    return parse_address(at, "tcp")
