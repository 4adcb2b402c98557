"""From a dialect's name to a client that is connected."""

from __future__ import annotations

from polycast.address import Address, parse_address
from polycast.client.base import Client
from polycast.client.fanout import FanoutClient
from polycast.client.simplest import SimplestClient
from polycast.dialects.registry import ROLES
from polycast.errors import UsageError

DIALECTS: dict[str, tuple[type[Client], str, str]] = {
    "simplest": (SimplestClient, "simplest", "simplest"),
    "fanout": (FanoutClient, "fanout.controller", "fanout.client"),
}
"""For each dialect its client, where that publishes and where it subscribes."""


def connect(dialect: str, at: str = "", publishing: bool = False) -> Client:
    """`at` is an address, or empty for the dialect's default one."""
    if dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect}", f"known are {', '.join(DIALECTS)}")
    kind, publishers, subscribers = DIALECTS[dialect]
    address: Address = parse_address(at or ROLES[publishers if publishing else subscribers].default, "tcp")
    return kind(address)
