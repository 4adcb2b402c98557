"""Members grouped by peer address. When there are too many, the oldest member of the largest group is evicted.

So a flood from a few addresses evicts only members from those addresses, and a new member is always admitted.
All operations take constant time.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

HOST_BITS = 64
"""Prefix length of an IPv6 group: providers assign at least a /64 per customer."""


def address_group_of(host: str | None) -> str:
    """An IPv4 address, a /64 of IPv6; empty for all Unix sockets."""
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
        self._group_of: dict[T, str] = {}
        self._members: dict[str, OrderedDict[T, None]] = {}
        """By group, the oldest member first."""
        self._by_size: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)
        """The groups by their number of members."""
        self._largest = 0

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, member: T) -> bool:
        return member in self._group_of

    def of(self, group: str) -> int:
        return len(self._members.get(group, ()))

    def add(self, member: T, group: str) -> None:
        members = self._members.setdefault(group, OrderedDict())
        before = len(members)
        members[member] = None
        self._group_of[member] = group
        self._resize(group, before, len(members))

    def discard(self, member: T) -> bool:
        """Whether the member was there."""
        group = self._group_of.pop(member, None)
        if group is None:
            return False
        members = self._members[group]
        before = len(members)
        del members[member]
        if not members:
            del self._members[group]
        self._resize(group, before, before - 1)
        return True

    def oldest(self, group: str) -> T | None:
        return next(iter(self._members.get(group, ())), None)

    def next_to_evict(self) -> T | None:
        """The oldest member of the largest group."""
        return self.oldest(next(iter(self._by_size[self._largest]))) if self._group_of else None

    def _resize(self, group: str, before: int, after: int) -> None:
        self._by_size[before].pop(group, None)
        if after:
            self._by_size[after][group] = None
        self._largest = max(self._largest, after)
        if not self._by_size[self._largest]:
            del self._by_size[self._largest]
            self._largest = after if before == self._largest else self._largest
