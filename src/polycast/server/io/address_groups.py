"""Members by the address they come from. Where there are too many, the oldest of the busiest address goes first.

So a flood from one address, or from a few, costs those addresses alone; and a newcomer always finds room, since
it is the newest. All steps take constant time, however many addresses there are.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

HOST_BITS = 64
"""Of an IPv6 address: one subscriber of a network has all of them."""


def address_group_of(host: str | None) -> str:
    """What counts as one address: an IPv4 address, a /64 of IPv6, all socket files."""
    if not host:
        return ""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> HOST_BITS << HOST_BITS)}/{HOST_BITS}"


class AddressGroups(Generic[T]):
    def __init__(self) -> None:
        self._origins: dict[T, str] = {}
        self._members: dict[str, OrderedDict[T, None]] = {}
        """By origin, the oldest first."""
        self._by_size: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)
        """The origins that have so many members."""
        self._most = 0

    def __len__(self) -> int:
        return len(self._origins)

    def __contains__(self, member: T) -> bool:
        return member in self._origins

    def of(self, origin: str) -> int:
        return len(self._members.get(origin, ()))

    def add(self, member: T, origin: str) -> None:
        members = self._members.setdefault(origin, OrderedDict())
        before = len(members)
        members[member] = None
        self._origins[member] = origin
        self._resize(origin, before, len(members))

    def discard(self, member: T) -> bool:
        """Whether it was there."""
        origin = self._origins.pop(member, None)
        if origin is None:
            return False
        members = self._members[origin]
        before = len(members)
        del members[member]
        if not members:
            del self._members[origin]
        self._resize(origin, before, before - 1)
        return True

    def oldest(self, origin: str) -> T | None:
        return next(iter(self._members.get(origin, ())), None)

    def first_to_go(self) -> T | None:
        """The oldest member of the origin that has the most."""
        return self.oldest(next(iter(self._by_size[self._most]))) if self._origins else None

    def _resize(self, origin: str, before: int, after: int) -> None:
        self._by_size[before].pop(origin, None)
        if after:
            self._by_size[after][origin] = None
        self._most = max(self._most, after)
        if not self._by_size[self._most]:
            del self._by_size[self._most]
            self._most = after if before == self._most else self._most
