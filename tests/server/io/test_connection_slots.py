"""Who may hold the places of `limits.connections`, and who makes room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polycast.dialects.guard import Guard
from polycast.server.io.connection_slots import DISPLACED, ConnectionSlots


class Somebody(Guard):
    def __init__(self, known: bool, has_no_rights: bool) -> None:
        self.known, self.has_no_rights = known, has_no_rights


class Peer:
    """As much of a connection as places know."""

    def __init__(self, kind: str, origin: str = "", accepts_token: bool = True) -> None:
        self.guard = Somebody(known=kind == "known", has_no_rights=kind == "silent")
        self.address_group = origin
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


def enter(places: Any, kind: str, count: int, origin: str = "", accepts_token: bool = True) -> list[Peer]:
    """Those of so many who got a place."""
    origins = [f"{origin}{number}" if origin == "many" else origin for number in range(count)]
    peers = [Peer(kind, each, accepts_token) for each in origins]
    return [peer for peer in peers if places.enter(peer)]


def show(places: Any, peer: Peer, kind: str) -> None:
    peer.guard = Peer(kind).guard
    places.review(peer)


def test_the_known_may_hold_all_places_and_are_never_displaced() -> None:
    places = ConnectionSlots(100, 0)
    known = enter(places, "known", 150)
    assert len(known) == len(places) == 100
    for kind in ("known", "unknown", "silent"):
        assert enter(places, kind, 1) == []
    assert not any(peer.ended or peer.unauthorized for peer in known)


def test_the_silent_hold_half_of_them_and_the_oldest_makes_room() -> None:
    places = ConnectionSlots(100, 0)
    silent = enter(places, "silent", 80, "many")
    assert len(silent) == 80
    assert [peer.ended for peer in silent] == [DISPLACED] * 30 + [""] * 50
    assert "half of limits.connections" in silent[0].reason
    assert len(enter(places, "known", 200)) == 100
    assert all(peer.ended for peer in silent)


def test_the_busiest_address_makes_room_first() -> None:
    places = ConnectionSlots(100, 40)
    few = enter(places, "silent", 10, "few")
    flood = enter(places, "silent", 500, "flood")
    assert [peer.ended for peer in flood] == [DISPLACED] * 460 + [""] * 40
    assert "limits.connections_per_address" in flood[0].reason
    more = enter(places, "silent", 20, "many")
    assert not any(peer.ended for peer in few + more)
    assert sum(not peer.ended for peer in flood) == 20


def test_a_part_is_reserved_for_the_known() -> None:
    places = ConnectionSlots(1_000, 1_000)
    unknown = enter(places, "unknown", 2_000)
    assert sum(not peer.unauthorized and not peer.ended for peer in unknown) == 900
    assert sum(peer.unauthorized and not peer.ended for peer in unknown) == 100
    assert len(enter(places, "known", 200)) == 100
    assert enter(places, "unknown", 1, accepts_token=False) == []


def test_whoever_finds_no_lasting_place_can_still_introduce_itself() -> None:
    """Its address is full of the unknown, and a newer one makes it go if it does not."""
    places = ConnectionSlots(100, 10)
    unknown = enter(places, "unknown", 10, "plant")
    [one] = enter(places, "unknown", 1, "plant")
    assert one.unauthorized
    show(places, one, "known")
    assert not one.unauthorized
    [two] = enter(places, "unknown", 1, "plant")
    [three] = enter(places, "unknown", 1, "plant")
    assert (two.ended, three.ended) == (DISPLACED, "")
    assert not any(peer.ended or peer.unauthorized for peer in unknown)
    assert "limits.connections_per_address" in places.why_not(unknown[0])


def test_whoever_loses_its_rights_is_unauthorized_again() -> None:
    places = ConnectionSlots(4, 0)
    known = enter(places, "known", 4)
    show(places, known[0], "silent")
    assert known[0].unauthorized
    assert len(places) == 4
    assert len(enter(places, "known", 1)) == 1
    assert known[0].ended == DISPLACED


def test_places_are_free_again_when_everybody_has_left() -> None:
    places = ConnectionSlots(60, 20)
    for _ in range(3):
        peers = [peer for kind in ("known", "unknown", "silent") for peer in enter(places, kind, 20, "here")]
        assert len(peers) == 60
        for peer in peers:
            places.leave(peer)  # type: ignore[arg-type]
        assert len(places) == 0


def test_a_single_place() -> None:
    places = ConnectionSlots(1, 0)
    [silent] = enter(places, "silent", 1)
    [known] = enter(places, "known", 1)
    assert (silent.ended, known.ended) == (DISPLACED, "")
    assert enter(places, "silent", 1) == []
