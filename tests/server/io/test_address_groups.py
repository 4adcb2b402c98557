"""Members by their address: the oldest of the busiest address goes first."""

from __future__ import annotations

import random

import pytest

from polycast.server.io.address_groups import AddressGroups, address_group_of


def test_it_goes_as_counting_by_hand_says() -> None:
    dice = random.Random(7)
    crowd: AddressGroups[int] = AddressGroups()
    there: dict[int, str] = {}
    for number in range(5_000):
        if there and dice.random() < 0.45:
            gone = dice.choice(list(there))
            assert crowd.discard(gone)
            assert not crowd.discard(gone)
            del there[gone]
        else:
            there[number] = dice.choice("aabbbcdefgh")
            crowd.add(number, there[number])
        sizes = {origin: list(there.values()).count(origin) for origin in "abcdefgh"}
        assert len(crowd) == len(there)
        assert all(crowd.of(origin) == size for origin, size in sizes.items())
        first = crowd.next_to_evict()
        if not there:
            assert first is None
            continue
        assert first is not None
        busiest = there[first]
        assert sizes[busiest] == max(sizes.values())
        assert first == crowd.oldest(busiest) == min(each for each, origin in there.items() if origin == busiest)


def test_the_oldest_go_at_a_constant_cost() -> None:
    """A cost that grows with how many went before would make this very slow."""
    crowd: AddressGroups[int] = AddressGroups()
    members = 200_000
    for number in range(members):
        crowd.add(number, str(number % 2))
    gone = []
    while (first := crowd.next_to_evict()) is not None:
        crowd.discard(first)
        gone.append(first)
    assert sorted(gone) == list(range(members))


@pytest.mark.parametrize(
    ("host", "origin"),
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
def test_what_counts_as_one_address(host: str | None, origin: str) -> None:
    assert address_group_of(host) == origin
