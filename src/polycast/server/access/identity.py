"""The identity of a peer by its certificate or its source address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from polycast.errors import UsageError
from polycast.server.access.rules import ANONYMOUS, DIALLED, LOOPBACK, NAME, RESERVED_NAMES, check_name

Network = tuple[str, IPv4Network | IPv6Network]
"""The identity of peers from a network, and the network."""
ALTERNATIVES = ("DNS", "URI", "email")
"""The kinds of subject alternative names that can be an identity."""


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """The narrowest network first: it takes precedence."""
    networks = [_parse_network(text) for text in texts]
    return sorted(networks, key=lambda network: -network[1].prefixlen)


def _parse_network(text: str) -> Network:
    name, separator, network = text.partition("=")
    if not separator:
        raise UsageError(f"{text!r} is not a network", "write NAME=10.0.0.0/8")
    check_name(name)
    if name in (LOOPBACK, DIALLED):
        raise UsageError(f"{text!r}: {name} is a reserved name", "give the network another name")
    try:
        return name, ip_network(network)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}", "write NAME=10.0.0.0/8") from error


def from_address(host: str | None, networks: list[Network]) -> str:
    """`host` is an IP address; None: a Unix socket."""
    if host is None:
        return LOOPBACK
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return ANONYMOUS
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    for name, network in networks:
        if address in network:
            return name
    return LOOPBACK if address.is_loopback else ANONYMOUS


def from_certificate(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name, else the first alternative name; None if there is no valid name."""
    if not certificate:
        return None
    named = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    others = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ALTERNATIVES]
    name = next(iter(named + others), "")
    return name if NAME.fullmatch(name) and name not in RESERVED_NAMES else None
