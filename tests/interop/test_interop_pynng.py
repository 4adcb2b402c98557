"""nng's sockets in Python, from PyPI, as PUB and as SUB, connecting and being connected to."""

from __future__ import annotations

import pytest

from kit.broker import Broker
from kit.frames import pub
from kit.nng import NngSocket
from kit.room import Room
from kit.sp import url_for, url_of
from kit.wire import wait_for

pytestmark = pytest.mark.interop

EVERY_BYTE = bytes(range(256))
PRELUDE = b"prelude|"
COUNT = 100
"""A SUB of nng keeps 128 messages that nobody has taken yet; what comes then pushes out what is there."""
BODIES = [b"%d|" % number + EVERY_BYTE * number for number in range(COUNT)]


def sub(*topics: bytes, **place: str) -> NngSocket:
    return NngSocket("Sub0", topics=list(topics) or b"", **place)


def expect_bodies(room: Room, socket: NngSocket, bodies: list[bytes]) -> None:
    """Publishes these to a SUB after its first delivery: all arrive, in order, unchanged."""
    publisher = room.simplest()

    def received() -> bool:
        room.send_commands(publisher, pub("prelude"))
        return socket.recv_now() == PRELUDE

    wait_for(received, "the first message to reach a SUB")
    for body in bodies:
        topic, _, payload = body.partition(b"|")
        publisher.send(pub(topic.decode(), payload))
    while (first := socket.recv()) == PRELUDE:
        pass
    assert [first, *(socket.recv() for _ in bodies[1:])] == bodies


def send_bodies(room: Room, socket: NngSocket, bodies: list[bytes]) -> None:
    """A PUB publishes these as soon as it has a peer; each is delivered once, in order."""
    subscriber = room.simplest(b"sub \n")
    wait_for(socket.pipes, "the broker at a PUB")
    for body in bodies:
        topic, _, payload = body.partition(b"|")
        socket.send(body)
        subscriber.expect(pub(topic.decode(), payload))  # a PUB of nng drops what its peer has not taken in time
    room.expect_quiet(subscriber)


def test_a_sub_connects(broker: Broker, room: Room, scheme: str) -> None:
    with sub(dial=url_of(broker, "nanomsg.pub", scheme)) as socket:
        expect_bodies(room, socket, BODIES)


def test_a_pub_connects(broker: Broker, room: Room, scheme: str) -> None:
    with NngSocket("Pub0", dial=url_of(broker, "nanomsg.sub", scheme)) as socket:
        send_bodies(room, socket, BODIES)


def test_the_broker_connects_to_a_pub_and_a_sub(scheme: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    source, target = (url_for(scheme, tmp_path_factory.mktemp("ipc")) for _ in range(2))
    with (
        NngSocket("Pub0", listen=source) as publisher,
        sub(listen=target) as listener,
        Broker(f"--connect=nanomsg.sub={source}", f"--connect=nanomsg.pub={target}") as broker,
        Room(broker) as room,
    ):
        expect_bodies(room, listener, BODIES)
        send_bodies(room, publisher, BODIES)
        assert [listener.recv() for _ in BODIES] == BODIES


def test_a_broker_goes_and_another_comes(scheme: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    url = url_for(scheme, tmp_path_factory.mktemp("ipc"))
    with sub(listen=url) as socket:
        for _ in range(2):
            with Broker(f"--connect=nanomsg.pub={url}") as broker, Room(broker) as room:
                expect_bodies(room, socket, BODIES[:3])


def test_topics_are_chosen_by_the_sub(broker: Broker, room: Room, scheme: str) -> None:
    with sub(b"7|", b"5", b"prelude", dial=url_of(broker, "nanomsg.pub", scheme)) as socket:
        wanted = [body for body in BODIES if body.startswith((b"7|", b"5"))]
        assert len(wanted) == 12
        publisher = room.simplest()
        expect_bodies(room, socket, wanted)
        for body in (b"6|not asked for", b"57|asked for"):
            topic, _, payload = body.partition(b"|")
            room.send_commands(publisher, pub(topic.decode(), payload))
        assert socket.recv() == b"57|asked for"


def test_a_pub_and_a_sub_through_the_broker(broker: Broker, room: Room, scheme: str) -> None:
    """A body that has no topic, or an odd one, is the same at the other end."""
    bodies = [b"no topic", b"|leading", b"trailing|", b"a|b|c", b"\xff|no UTF-8", b"|", EVERY_BYTE * 4000]
    with (
        sub(dial=url_of(broker, "nanomsg.pub", scheme)) as listener,
        NngSocket("Pub0", dial=url_of(broker, "nanomsg.sub", scheme)) as publisher,
    ):
        expect_bodies(room, listener, [b"ready|"])
        wait_for(publisher.pipes, "the broker at a PUB")
        for body in bodies:
            publisher.send(body)
            assert listener.recv() == body
