"""Announcements of peers: validation, and the limit of the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.broker import Peer, PeerTable, announcements
from polycast.broker.announcements import from_announcement, to_announcement
from polycast.model import Burst, Format

TOPIC = b"//peers/myorg/bob"


def announce(*rows: tuple[bytes, bytes]) -> Burst:
    return Burst.of("some", [(topic, payload, Format.BYTES) for topic, payload in rows])


@pytest.mark.parametrize(
    ("topic", "payload", "peer"),
    [
        (TOPIC, b"1.2.3.4 9014", Peer("myorg", "bob", "1.2.3.4", 9014, 5.0)),
        (b"//fwd/peers/myorg/bob", b"1.2.3.4 9014", Peer("myorg", "bob", "1.2.3.4", 9014, 5.0)),
        (TOPIC, b"1.2.3.4 1", Peer("myorg", "bob", "1.2.3.4", 1, 5.0)),
        (TOPIC, b"1.2.3.4 65535", Peer("myorg", "bob", "1.2.3.4", 65535, 5.0)),
        (TOPIC, b"127.0.0.1 9014", Peer("myorg", "bob", "127.0.0.1", 9014, 5.0)),
        (TOPIC, b"::1 9014", Peer("myorg", "bob", "::1", 9014, 5.0)),
        (TOPIC, b"2001:DB8::0:1 9014", Peer("myorg", "bob", "2001:db8::1", 9014, 5.0)),
        (TOPIC, b"::ffff:1.2.3.4 9014", Peer("myorg", "bob", "1.2.3.4", 9014, 5.0)),
        (TOPIC, b"::ffff:102:304 9014", Peer("myorg", "bob", "1.2.3.4", 9014, 5.0)),
        (TOPIC, b"fe80::1 9014", Peer("myorg", "bob", "fe80::1", 9014, 5.0)),
        (TOPIC, b"1.2.3.4 9014\n", Peer("myorg", "bob", "1.2.3.4", 9014, 5.0)),
        (b"//peers/myorg/b/o/b", b"1.2.3.4 9014", Peer("myorg", "b/o/b", "1.2.3.4", 9014, 5.0)),
        ("//peers/é/ü".encode(), b"1.2.3.4 9014", Peer("é", "ü", "1.2.3.4", 9014, 5.0)),
    ],
)
def test_good_announcements(topic: bytes, payload: bytes, peer: Peer) -> None:
    assert from_announcement(topic, payload, 5.0) == peer
    assert PeerTable().add_announced(announce((topic, payload)), 5.0) == [peer]


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (b"//peers/myorg", b"1.2.3.4 9014"),
        (b"//peers/myorg/", b"1.2.3.4 9014"),
        (b"//peers//bob", b"1.2.3.4 9014"),
        (b"//peer/myorg/bob", b"1.2.3.4 9014"),
        (b"peers/myorg/bob", b"1.2.3.4 9014"),
        (b"x//peers/myorg/bob", b"1.2.3.4 9014"),
        (b"//fwd/fwd/peers/myorg/bob", b"1.2.3.4 9014"),
        (b"//peers/myorg/bob\nx", b"1.2.3.4 9014"),
        (TOPIC, b""),
        (TOPIC, b"1.2.3.4"),
        (TOPIC, b"9014"),
        (TOPIC, b"1.2.3.4:9014"),
        (TOPIC, b"1.2.3.4  9014"),
        (TOPIC, b"1.2.3.4\t9014"),
        (TOPIC, b"1.2.3.4 9014 x"),
        (TOPIC, b"1.2.3.4 0"),
        (TOPIC, b"1.2.3.4 65536"),
        (TOPIC, b"1.2.3.4 99999"),
        (TOPIC, b"1.2.3.4 009014"),
        (TOPIC, b"1.2.3.4 -1"),
        (TOPIC, b"1.2.3.4 +9014"),
        (TOPIC, b"1.2.3.4 9_14"),
        (TOPIC, b"1.2.3.4 0x10"),
        (TOPIC, "1.2.3.4 ٩".encode()),
        (TOPIC, b"1.2.3 9014"),
        (TOPIC, b"1.2.3.256 9014"),
        (TOPIC, b"01.2.3.4 9014"),
        (TOPIC, b"16909060 9014"),
        (TOPIC, b"example.org 9014"),
        (TOPIC, b"localhost 9014"),
        (TOPIC, b"0.0.0.0 9014"),
        (TOPIC, b":: 9014"),
        (TOPIC, b"224.0.0.1 9014"),
        (TOPIC, b"255.255.255.255 9014"),
        (TOPIC, b"ff02::1 9014"),
        (TOPIC, b"::1%1 9014"),
        (TOPIC, b"fe80::1%lo 9014"),
        (TOPIC, b"fe80::1%\x1b[31m 9014"),
        (TOPIC, b"::ffff:0.0.0.0 9014"),
        (TOPIC, b"::ffff:255.255.255.255 9014"),
        (TOPIC, b"::ffff:224.0.0.1 9014"),
        (TOPIC, b"[::1] 9014"),
        (TOPIC, b"\xff\xff 9014"),
        (b"//peers/myorg/\xff", b"1.2.3.4 9014"),
    ],
)
def test_bad_announcements(topic: bytes, payload: bytes) -> None:
    table = PeerTable()
    assert table.add_announced(announce((topic, payload)), 5.0) == []
    assert len(table) == 0


@given(
    st.one_of(st.binary(max_size=20), st.text("/peersfwdé\n", max_size=20).map(str.encode)), st.binary(max_size=20)
)
def test_anything_may_be_announced(rest: bytes, payload: bytes) -> None:
    PeerTable().add_announced(announce((b"//peers/" + rest, payload)), 0.0)


def test_there_and_back() -> None:
    topic, payload = to_announcement("myorg", "bob", "1.2.3.4", 9014)
    assert (topic, payload) == (TOPIC, b"1.2.3.4 9014")
    assert from_announcement(topic, payload, 0.0) == Peer("myorg", "bob", "1.2.3.4", 9014, 0.0)


def test_the_last_announcement_counts() -> None:
    table = PeerTable()
    table.add_announced(announce((TOPIC, b"1.2.3.4 1"), (b"//peers/myorg/eve", b"1.2.3.4 2")), 1.0)
    table.add_announced(announce((b"//fwd/peers/myorg/bob", b"5.6.7.8 3")), 2.0)
    assert sorted(table.all()) == [
        Peer("myorg", "bob", "5.6.7.8", 3, 2.0),
        Peer("myorg", "eve", "1.2.3.4", 2, 1.0),
    ]


def test_other_messages_of_a_burst_are_nothing() -> None:
    table = PeerTable()
    burst = announce((b"//x", b"1.2.3.4 1"), (TOPIC, b"no"), (TOPIC, b"1.2.3.4 1"), (b"\xff", b"1.2.3.4 1"))
    assert [peer.port for peer in table.add_announced(burst, 1.0)] == [1]


def test_the_table_is_bounded_and_drops_the_oldest_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "TABLE_LIMIT", 3)
    table = PeerTable()
    for i in (0, 1, 2, 0, 3, 4):
        table.add_announced(announce((b"//peers/o/%d" % i, b"1.2.3.4 9014")), float(i))
        assert len(table) <= 3
    assert {peer.name for peer in table.all()} == {"0", "3", "4"}


def test_the_limit_of_the_table() -> None:
    table = PeerTable()
    table.add_announced(
        announce(*[(b"//peers/o/%d" % i, b"1.2.3.4 9014") for i in range(announcements.TABLE_LIMIT + 5)]), 0.0
    )
    assert len(table) == announcements.TABLE_LIMIT


def test_endless_names_have_a_constant_cost() -> None:
    """A cost that grows with evicted entries would make this test very slow."""
    table, rounds = PeerTable(), 5
    for turn in range(rounds):
        names = range(turn * announcements.TABLE_LIMIT, (turn + 1) * announcements.TABLE_LIMIT)
        table.add_announced(announce(*[(b"//peers/o/%d" % i, b"1.2.3.4 9014") for i in names]), float(turn))
    assert len(table) == announcements.TABLE_LIMIT
    assert {peer.announced_at for peer in table.all()} == {rounds - 1.0}
