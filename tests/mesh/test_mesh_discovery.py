"""Announced addresses of brokers."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.links import expect_delivered, wait_for_links
from kit.room import Room
from kit.wire import GUARD_SECONDS, Peer, wait_for

LISTEN = (*ALL, "simplest.peer")
BAD = [
    b"999.1.1.1 9014", b"1.2.3 9014", b"localhost 9014", b"127.0.0.1 0", b"127.0.0.1 99999", b"127.0.0.1 -1",
    b"127.0.0.1 0x10", b"127.0.0.1", b"9014", b"", b"127.0.0.1 9014 more", b"127.0.0.1  9014", b"127.0.0.1\t9014",
    b"0.0.0.0 9014", b":: 9014", b"224.0.0.1 9014", b"\xff\xfe 9014", b"127.0.0.1 \xd9\xa1", b"127.0.0.1:9014",
]  # fmt: skip
"""Ignored announcements: no IP, no port, or an unusable address."""
DISCOVER = (
    "--discover=org",
    "--set=simplest.discover_networks=127.0.0.0/8",
    "--set=access.networks=mesh=127.0.0.0/8",
    "--set=access.rules=mesh may everything",
)


@contextmanager
def waiting_to_be_found() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(GUARD_SECONDS)
        yield found


def place_of(listening: socket.socket) -> bytes:
    return b"127.0.0.1 %d" % listening.getsockname()[1]


def raw_link(broker: Broker) -> Peer:
    return broker.connect("simplest.peer")


def member(name: str, *flags: str) -> Broker:
    return Broker(f"--announce=org/{name}", *DISCOVER, "-v", *flags, listen=LISTEN)


# -- announcements ---------------------------------------------------------------------------------------


def test_an_announcement_has_ip_and_port() -> None:
    with Broker("--announce=org/me", listen=LISTEN) as broker, raw_link(broker) as link:
        link.send(b"sub //peers/org/\n")
        link.expect(pub("//peers/org/me", b"127.0.0.1 %d" % broker.ports["simplest.peer"]))


def test_an_announcement_can_name_another_address_and_is_repeated() -> None:
    flags = ("--announce=org/me=192.0.2.7:9999", "--set=simplest.announce_seconds=0.1")
    announcement = pub("//peers/org/me", b"192.0.2.7 9999")
    with Broker(*flags, listen=LISTEN) as broker, raw_link(broker) as link, broker.connect("simplest") as client:
        link.send(b"sub //peers/org/\n")
        link.expect(announcement)
        client.send(b"sub //peers/\n")
        client.expect(announcement * 2)


# -- trusted announcements -------------------------------------------------------------------------------


def test_bad_announcements_are_ignored_and_a_good_one_is_followed() -> None:
    with (
        Broker(*DISCOVER, listen=LISTEN) as broker,
        waiting_to_be_found() as found,
        raw_link(broker) as link,
    ):
        link.expect(b"sub //peers/org/\n")
        own = b"127.0.0.1 %d" % broker.ports["simplest.peer"]
        for number, claim in enumerate([*BAD, own]):
            link.send(pub(f"//peers/org/bad{number}", claim))
        link.send(pub("//peers/other/name", place_of(found)) + pub("//peers/org/good", place_of(found)))
        with found.accept()[0] as dialled:
            dialled.settimeout(GUARD_SECONDS)
            assert re.match(rb"sub polycast/node/[0-9a-f]+\n", dialled.recv(65536))
        [line] = broker.wait_for_log("announced at").splitlines()
        assert "peer 'org/good': announced at 127.0.0.1:" in line


def test_names_of_announcements() -> None:
    with Broker(*DISCOVER, listen=LISTEN) as broker, raw_link(broker) as link:
        for name in ("//peers/org/bob", "//fwd/peers/org/bob", "//peers/org/bob/the/second"):
            with waiting_to_be_found() as found:
                link.send(pub(name, place_of(found)))
                found.accept()[0].close()


def test_without_discover_no_peer_is_dialled() -> None:
    with Broker(listen=LISTEN) as broker, Room(broker) as room, waiting_to_be_found() as found:
        link = room.simplest(pub("//peers/org/bob", place_of(found)), listener="simplest.peer")
        room.send_commands(link, b"")
        found.setblocking(False)
        with pytest.raises(BlockingIOError):
            found.accept()
        assert "announced" not in broker.log()


def test_one_place_is_dialled_once() -> None:
    with (
        Broker(*DISCOVER, listen=LISTEN) as broker,
        waiting_to_be_found() as found,
        raw_link(broker) as link,
    ):
        link.send(pub("//peers/org/a", place_of(found)) + pub("//peers/org/b", place_of(found)))
        with found.accept()[0], waiting_to_be_found() as other:
            link.send(pub("//peers/org/a", place_of(found)) + pub("//peers/org/c", place_of(other)))
            other.accept()[0].close()
        assert broker.log().count("announced at") == 2


def test_no_more_links_than_the_limit() -> None:
    flags = (*DISCOVER, "--set=simplest.links=1")
    with Broker(*flags, listen=LISTEN) as broker, waiting_to_be_found() as one, raw_link(broker) as link:
        link.send(pub("//peers/org/one", place_of(one)))
        with one.accept()[0], waiting_to_be_found() as two:
            link.send(pub("//peers/org/two", place_of(two)))
            assert "1 links is the limit" in broker.wait_for_log("peer 'org/two': not linked")


# -- whole meshes ----------------------------------------------------------------------------------------


def dial(broker: Broker) -> str:
    return f"--peer=127.0.0.1:{broker.ports['simplest.peer']}"


def test_two_that_discover_each_other_end_with_one_link() -> None:
    with member("a") as a, member("b", dial(a)) as b:
        wait_for(lambda: "leads to the same broker" in a.log() + b.log(), "one of two links to end")
        for broker in (a, b):
            wait_for_links(broker, 1)
        expect_delivered(a, b, "x", b"1")
        expect_delivered(b, a, "x", b"2")


@contextmanager
def three_members() -> Iterator[tuple[Broker, Broker, Broker]]:
    """Two brokers that know only the first one; each ends with links to both others."""
    with (
        member("a", "--forward") as a,
        member("b", "--forward", dial(a)) as b,
        member("c", "--forward", dial(a)) as c,
    ):
        for broker in (a, b, c):
            wait_for_links(broker, 2)
        yield a, b, c


def test_three_find_each_other_through_the_one_they_know() -> None:
    with three_members() as (a, b, c):
        for source, target in ((a, b), (b, c), (c, a), (b, a), (c, b), (a, c)):
            expect_delivered(source, target, "//x", b"%d" % id(source))


def test_they_stay_linked_without_the_one_they_knew() -> None:
    with three_members() as (a, b, c):
        a.stop()
        for broker in (b, c):
            wait_for_links(broker, 1)
        expect_delivered(b, c, "//x", b"1")
        expect_delivered(c, b, "//x", b"2")
