"""The `simplest.peer` listener, with a plain socket as the peer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.room import Room
from kit.slow import QUEUE_BYTES, publish_until
from kit.wire import Peer

LISTEN = (*ALL, "simplest.peer")
fences = count()


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker(listen=LISTEN) as broker:
        yield broker


@pytest.fixture(scope="module")
def forwarding() -> Iterator[Broker]:
    with Broker("--forward", listen=LISTEN) as broker:
        yield broker


@pytest.fixture
def room(plain: Broker) -> Iterator[Room]:
    with Room(plain) as peers:
        yield peers


@pytest.fixture
def forward_room(forwarding: Broker) -> Iterator[Room]:
    with Room(forwarding) as peers:
        yield peers


def link(room: Room, commands: bytes = b"") -> Peer:
    """A link with the fence subscription, after its commands were handled."""
    return room.simplest(commands, listener="simplest.peer")


def subscriptions_of(peer: Peer, room: Room) -> list[bytes]:
    """The subscriptions at a link so far, in any order; the subscription of a new client is the fence."""
    fence = b"fence.%d\n" % next(fences)
    room.simplest(b"sub " + fence).close()
    lines = peer.read_until(b"unsub " + fence).splitlines()
    return sorted(line for line in lines if b"fence." not in line)


# -- subscriptions at a link -------------------------------------------------------------------------------


def test_patterns_of_clients_are_subscribed_at_links(room: Room) -> None:
    room.simplest(b"sub one\n")
    peer = link(room)
    room.client(b"unsubscribe all\nsubscribe two.>\n")
    assert subscriptions_of(peer, room) == [b"sub all", b"sub one", b"sub two.", b"unsub all"]


def test_a_shared_pattern_is_subscribed_once(room: Room) -> None:
    peer = link(room)
    one, two = room.simplest(b"sub x\n"), room.simplest(b"sub x\n")
    room.client(b"unsubscribe all\nsubscribe x\n")
    subscriptions = subscriptions_of(peer, room)
    assert subscriptions.count(b"sub x") == 1
    room.send_commands(one, b"unsub x\n")
    assert subscriptions_of(peer, room) == []
    two.close()
    assert subscriptions_of(peer, room) == []


def test_unused_patterns_are_unsubscribed_at_links(room: Room) -> None:
    peer = link(room)
    client = room.simplest(b"sub x\nsub y\nsub \n")
    assert subscriptions_of(peer, room) == [b"sub ", b"sub x", b"sub y"]
    room.send_commands(client, b"unsub x\n")
    assert subscriptions_of(peer, room) == [b"unsub x"]
    client.close()
    peer.read_until(b"unsub y\n")


def test_reserved_topics_are_not_subscribed_at_links(room: Room) -> None:
    peer = link(room)
    room.simplest(b"sub polycast/events/\n")
    assert subscriptions_of(peer, room) == []


def test_without_forwarding_patterns_of_links_are_not_propagated(room: Room) -> None:
    peer = link(room)
    link(room, b"sub x\n")
    assert subscriptions_of(peer, room) == []


def test_without_forwarding_only_the_direct_name_is_subscribed(room: Room) -> None:
    peer = link(room)
    room.simplest(b"sub //x\n")
    assert subscriptions_of(peer, room) == [b"sub //x"]


@pytest.mark.parametrize("text", [b"//x/", b"//fwd/x/"])
def test_with_forwarding_both_names_are_subscribed(forward_room: Room, text: bytes) -> None:
    peer = link(forward_room)
    forward_room.simplest(b"sub " + text + b"\n")
    assert subscriptions_of(peer, forward_room) == [b"sub //fwd/x/", b"sub //x/"]


def test_with_forwarding_and_two_links_everything_is_subscribed(forward_room: Room) -> None:
    one = link(forward_room, b"sub //x\n")
    assert subscriptions_of(one, forward_room) == []
    two = link(forward_room)
    one.expect(b"sub \n")
    assert subscriptions_of(two, forward_room) == [b"sub "]
    one.close()
    two.expect(b"unsub \n")


# -- deliveries ------------------------------------------------------------------------------------------


def test_messages_of_clients_go_to_subscribed_links(room: Room) -> None:
    matching, other = link(room, b"sub x\n"), link(room, b"sub y\n")
    room.simplest(pub("ax", b"1"))
    room.send_as_controller(room.controller(), b"x.b 2\n")
    matching.expect(pub("ax", b"1") + pub("x.b", b"2"))
    room.expect_quiet(other)


def test_messages_of_links_go_to_clients(room: Room) -> None:
    simplest, fanout = room.simplest(b"sub x\n"), room.client(b"subscribe x.y\n")
    peer = link(room)
    peer.read_until(b"x.y\n")
    room.send_commands(peer, pub("x.y", b"hello"))
    simplest.expect(pub("x.y", b"hello"))
    fanout.expect(b"x.y!hello\n")


def test_messages_of_links_do_not_go_to_links(room: Room) -> None:
    client = room.simplest(b"sub x\n")
    one, two = link(room, b"sub x\nsub \n"), link(room, b"sub x\nsub \n")
    for peer in (one, two):
        peer.expect(b"sub x\n")
    room.send_commands(one, pub("x", b"1") + pub("//x", b"2") + pub("//fwd/x", b"3"))
    client.expect(pub("x", b"1") + pub("//x", b"2") + pub("//fwd/x", b"3"))
    room.expect_quiet(two)
    room.expect_quiet(one)


@pytest.mark.parametrize("name", ["x", "//x", "//fwd/x"])
def test_with_forwarding_messages_go_on_under_their_forwarded_name(forward_room: Room, name: str) -> None:
    source = link(forward_room, b"sub //fwd/x\nsub x\n")
    other = link(forward_room, b"sub //fwd/x\nsub x\n")
    data = name.encode()  # distinct from the messages of other tests
    forward_room.send_commands(source, pub(name, data))
    other.read_until(pub("//fwd/x", data))
    expect_only_subscriptions(other, forward_room)
    expect_only_subscriptions(source, forward_room)


def expect_only_subscriptions(peer: Peer, room: Room) -> None:
    """No message was sent to this link."""
    room.simplest(pub("x", b"fence"))
    before = peer.read_until(pub("x", b"fence"))[: -len(pub("x", b"fence"))]
    assert all(line.startswith((b"sub ", b"unsub ")) for line in before.splitlines()), before
    room.simplest(pub("x", b"another"))  # the next fence differs from this one
    peer.expect(pub("x", b"another"))


def test_a_repeated_forwarded_copy_is_dropped(forward_room: Room) -> None:
    client = forward_room.simplest(b"sub again\n")
    one, two = link(forward_room), link(forward_room)
    forward_room.send_commands(one, pub("//fwd/again", b"1"))
    client.expect(pub("//fwd/again", b"1"))
    forward_room.send_commands(two, pub("//fwd/again", b"1") + pub("//fwd/again", b"2"))
    client.expect(pub("//fwd/again", b"2"))
    forward_room.expect_quiet(client)


def test_a_link_that_matches_both_names_gets_the_direct_one_only(forward_room: Room) -> None:
    peer = link(forward_room, b"sub //both\nsub //fwd/both\n")
    forward_room.simplest(pub("//both", b"1") + pub("//both", b"2"))
    peer.expect(pub("//both", b"1") + pub("//both", b"2"))


def test_a_link_that_subscribed_to_the_forwarded_name_gets_only_that(forward_room: Room) -> None:
    peer = link(forward_room, b"sub //fwd/only\n")
    forward_room.simplest(pub("//only", b"1") + pub("only", b"2") + pub("//fwd/only", b"3"))
    peer.expect(pub("//fwd/only", b"1") + pub("//fwd/only", b"2") + pub("//fwd/only", b"3"))


def test_a_malformed_pub_closes_the_link(forward_room: Room) -> None:
    bad, good = link(forward_room), link(forward_room)
    good.read_until(b"sub \n")
    bad.send(b"pub x y z\n")
    bad.expect_closed()
    good.read_until(b"unsub \n")


def test_reserved_topics_are_not_sent_to_links(room: Room) -> None:
    peer = link(room, b"sub \nsub x\n")
    room.simplest(pub("polycast/x", b"1") + pub("x", b"2"))
    peer.expect(pub("x", b"2"))


def test_with_forwarding_reserved_topics_are_not_sent_to_links(forward_room: Room) -> None:
    peer = link(forward_room, b"sub \n")
    client = forward_room.simplest(b"sub \n")
    peer.read_until(b"sub \n")
    forward_room.connect("simplest").send(pub("polycast/events/x", b"1") + pub("x", b"reserved or not"))
    client.expect(pub("x", b"reserved or not"))
    peer.expect(pub("x", b"reserved or not"))


def test_a_link_that_does_not_read_is_cut_off_whatever_the_policy() -> None:
    """A lost command would leave the link wrong forever."""
    flags = (f"--set=limits.queue_bytes={QUEUE_BYTES}", "--set=limits.policy=drop")
    with Broker(*flags, listen=LISTEN) as broker, Room(broker) as room:
        slow = room.simplest(b"sub flow\n", receive_bytes=4096, listener="simplest.peer")
        witness, publisher = room.simplest(b"sub flow\n"), room.simplest()
        publish_until(lambda: "too slow" in broker.log(), room, publisher, witness)
        slow.expect_closed()
