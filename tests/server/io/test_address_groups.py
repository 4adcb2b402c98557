"""Members grouped by address: the oldest member of the largest group is evicted first."""

from __future__ import annotations

import random

import pytest

from polycast.server.io.address_groups import AddressGroups, address_group_of


def test_matches_a_brute_force_count() -> None:
    dice = random.Random(7)
    groups: AddressGroups[int] = AddressGroups()
    present: dict[int, str] = {}
    for number in range(5_000):
        if present and dice.random() < 0.45:
            evicted = dice.choice(list(present))
            assert groups.discard(evicted)
            assert not groups.discard(evicted)
            del present[evicted]
        else:
            present[number] = dice.choice("aabbbcdefgh")
            groups.add(number, present[number])
        sizes = {group: list(present.values()).count(group) for group in "abcdefgh"}
        assert len(groups) == len(present)
        assert all(groups.of(group) == size for group, size in sizes.items())
        first = groups.next_to_evict()
        if not present:
            assert first is None
            continue
        assert first is not None
        largest = present[first]
        assert sizes[largest] == max(sizes.values())
        assert first == groups.oldest(largest) == min(each for each, group in present.items() if group == largest)


def test_eviction_takes_constant_time() -> None:
    """A cost that grows with the number of evictions would make this very slow."""
    groups: AddressGroups[int] = AddressGroups()
    members = 200_000
    for number in range(members):
        groups.add(number, str(number % 2))
    evicted = []
    while (first := groups.next_to_evict()) is not None:
        groups.discard(first)
        evicted.append(first)
    assert sorted(evicted) == list(range(members))


@pytest.mark.parametrize(
    ("host", "group"),
    [
        (None, ""),
        ("", ""),
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("somewhere", "somewhere"),
    ],
)
def test_what_counts_as_one_address(host: str | None, group: str) -> None:
    assert address_group_of(host) == group
