"""Who may use the slots of `limits.connections`, and who is displaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polycast.dialects.guard import Guard
from polycast.server.io.connection_slots import DISPLACED, ConnectionSlots


class FakeGuard(Guard):
    def __init__(self, known: bool, has_no_rights: bool) -> None:
        self.known, self.has_no_rights = known, has_no_rights


class Peer:
    """The part of a connection that slots use."""

    def __init__(self, kind: str, address: str = "", accepts_token: bool = True) -> None:
        self.guard = FakeGuard(known=kind == "known", has_no_rights=kind == "silent")
        self.address_group = address
        self.session = SimpleNamespace(accepts_token=accepts_token)
        self.unauthorized = False
        self.ended = ""
        self.reason = ""

    def mark_unauthorized(self) -> None:
        self.unauthorized = True

    def mark_authorized(self) -> None:
        self.unauthorized = False

    def disconnect(self, kind: str, reason: str) -> None:
        self.ended, self.reason = kind, reason


def acquire(slots: Any, kind: str, count: int, address: str = "", accepts_token: bool = True) -> list[Peer]:
    """The peers, out of `count`, that got a slot."""
    addresss = [f"{address}{number}" if address == "many" else address for number in range(count)]
    peers = [Peer(kind, each, accepts_token) for each in addresss]
    return [peer for peer in peers if slots.acquire(peer)]


def show(slots: Any, peer: Peer, kind: str) -> None:
    peer.guard = Peer(kind).guard
    slots.review(peer)


def test_known_identities_may_use_all_slots_and_are_never_displaced() -> None:
    slots = ConnectionSlots(100, 0)
    known = acquire(slots, "known", 150)
    assert len(known) == len(slots) == 100
    for kind in ("known", "anonymous", "silent"):
        assert acquire(slots, kind, 1) == []
    assert not any(peer.ended or peer.unauthorized for peer in known)


def test_silent_peers_use_half_of_the_slots_and_the_oldest_is_displaced() -> None:
    slots = ConnectionSlots(100, 0)
    silent = acquire(slots, "silent", 80, "many")
    assert len(silent) == 80
    assert [peer.ended for peer in silent] == [DISPLACED] * 30 + [""] * 50
    assert "half of limits.connections" in silent[0].reason
    assert len(acquire(slots, "known", 200)) == 100
    assert all(peer.ended for peer in silent)


def test_the_address_with_most_connections_is_displaced_first() -> None:
    slots = ConnectionSlots(100, 40)
    few = acquire(slots, "silent", 10, "few")
    flood = acquire(slots, "silent", 500, "flood")
    assert [peer.ended for peer in flood] == [DISPLACED] * 460 + [""] * 40
    assert "limits.connections_per_address" in flood[0].reason
    more = acquire(slots, "silent", 20, "many")
    assert not any(peer.ended for peer in few + more)
    assert sum(not peer.ended for peer in flood) == 20


def test_some_slots_are_reserved_for_known_identities() -> None:
    slots = ConnectionSlots(1_000, 1_000)
    anonymous = acquire(slots, "anonymous", 2_000)
    assert sum(not peer.unauthorized and not peer.ended for peer in anonymous) == 900
    assert sum(peer.unauthorized and not peer.ended for peer in anonymous) == 100
    assert len(acquire(slots, "known", 200)) == 100
    assert acquire(slots, "anonymous", 1, accepts_token=False) == []


def test_an_anonymous_peer_without_a_slot_can_still_show_a_token() -> None:
    """Its address has no slot left for anonymous peers; a newer peer disslots it unless it shows a token."""
    slots = ConnectionSlots(100, 10)
    anonymous = acquire(slots, "anonymous", 10, "plant")
    [one] = acquire(slots, "anonymous", 1, "plant")
    assert one.unauthorized
    show(slots, one, "known")
    assert not one.unauthorized
    [two] = acquire(slots, "anonymous", 1, "plant")
    [three] = acquire(slots, "anonymous", 1, "plant")
    assert (two.ended, three.ended) == (DISPLACED, "")
    assert not any(peer.ended or peer.unauthorized for peer in anonymous)
    assert "limits.connections_per_address" in slots.why_not(anonymous[0])


def test_a_peer_that_loses_its_rights_is_unauthorized_again() -> None:
    slots = ConnectionSlots(4, 0)
    known = acquire(slots, "known", 4)
    show(slots, known[0], "silent")
    assert known[0].unauthorized
    assert len(slots) == 4
    assert len(acquire(slots, "known", 1)) == 1
    assert known[0].ended == DISPLACED


def test_slots_are_free_again_when_all_connections_are_closed() -> None:
    slots = ConnectionSlots(60, 20)
    for _ in range(3):
        peers = [peer for kind in ("known", "anonymous", "silent") for peer in acquire(slots, kind, 20, "here")]
        assert len(peers) == 60
        for peer in peers:
            slots.release(peer)  # type: ignore[arg-type]
        assert len(slots) == 0


def test_a_single_slot() -> None:
    slots = ConnectionSlots(1, 0)
    [silent] = acquire(slots, "silent", 1)
    [known] = acquire(slots, "known", 1)
    assert (silent.ended, known.ended) == (DISPLACED, "")
    assert acquire(slots, "silent", 1) == []


def test_an_anonymous_peer_that_authenticates_frees_its_anonymous_slot() -> None:
    slots = ConnectionSlots(100, 10)
    anonymous = acquire(slots, "anonymous", 10, "plant")
    show(slots, anonymous[0], "known")
    [another] = acquire(slots, "anonymous", 1, "plant")
    assert not another.unauthorized
    assert len(slots) == 11
