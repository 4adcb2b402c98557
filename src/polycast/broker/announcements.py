"""Announced peers: a message on `//peers/<org>/<name>` carries `IP SP PORT`, also under `//fwd/`.

An announcement is an unproven claim of its sender. Only valid announcements are remembered, and only peers of
configured organisations are dialled.
"""

from __future__ import annotations

import ipaddress
import re
from collections import OrderedDict
from typing import NamedTuple

from polycast.address import PORT_LIMIT
from polycast.model import Burst

ANNOUNCEMENT = re.compile(r"//(?:fwd/)?peers/(?P<org>[^/]+)/(?P<name>.+)")
TABLE_LIMIT = 10_000


class Peer(NamedTuple):
    org: str
    name: str
    host: str
    port: int
    announced_at: float


def to_announcement(org: str, name: str, host: str, port: int) -> tuple[bytes, bytes]:
    return f"//peers/{org}/{name}".encode(), f"{host} {port}".encode()


def from_announcement(topic: bytes, payload: bytes, now: float) -> Peer | None:
    """None if the message is not a valid announcement."""
    try:
        match = ANNOUNCEMENT.fullmatch(topic.decode())
        words = payload.decode().strip().split(" ")
    except UnicodeDecodeError:
        return None
    if match is None or len(words) != 2 or not re.fullmatch(r"[0-9]{1,5}", words[1], re.ASCII):
        return None
    port, address = int(words[1]), _address_of(words[0])
    if address is None:
        return None
    unusable = address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255"
    if unusable or not 0 < port <= PORT_LIMIT:
        return None
    return Peer(match["org"], match["name"], str(address), port, now)


def _address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """In canonical form: no IPv4-mapped IPv6 address, and no zone, which may be any text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return None if address.scope_id else address.ipv4_mapped or address


class PeerTable:
    """The last announcement of each peer. Past the limit, the oldest one is dropped."""

    def __init__(self) -> None:
        self._peers: OrderedDict[tuple[str, str], Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def all(self) -> list[Peer]:
        return list(self._peers.values())

    def add_announced(self, burst: Burst, now: float) -> list[Peer]:
        """Adds the peers that this burst announces, and returns them."""
        announced: list[Peer] = []
        for run, first, last in burst.runs():
            topic = burst.topics[run]
            if topic.startswith((b"//peers/", b"//fwd/peers/")):
                payloads = (burst.block[burst.starts[i] : burst.ends[i]] for i in range(first, last))
                found = (from_announcement(topic, bytes(payload), now) for payload in payloads)
                announced += [peer for peer in found if peer]
        for peer in announced:
            self._add(peer)
        return announced

    def _add(self, peer: Peer) -> None:
        self._peers.pop((peer.org, peer.name), None)
        self._peers[peer.org, peer.name] = peer
        if len(self._peers) > TABLE_LIMIT:
            self._peers.popitem(last=False)
