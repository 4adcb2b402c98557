"""The command line programs of nanomsg and of nng, as PUB and as SUB, connecting and being connected to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker import Broker
from kit.cats import CATS, NANOCAT, NNGCAT, Cat, Listener
from kit.frames import pub
from kit.room import Room
from kit.sp import url_for, url_of
from kit.wire import wait_for

pytestmark = pytest.mark.interop

EVERY_BYTE = bytes(range(256))
PRELUDE = b"prelude|"
BURST = 20_000
LARGEST_BYTES = 1 << 20
"""What nanomsg takes by default, and the broker as well."""


@pytest.fixture(params=CATS, ids=str)
def cat(request: pytest.FixtureRequest) -> Cat:
    found: Cat = request.param
    return found


def wait_until_received(room: Room, listener: Listener) -> None:
    """Until what is published reaches it. After that nothing may be missing."""
    sender = room.simplest()

    def received() -> bool:
        room.send_commands(sender, pub("prelude"))
        return listener.received_something()

    wait_for(received, "the first message to reach a SUB")


def body_in(folder: Path, body: bytes) -> Path:
    file = folder / "body"
    file.write_bytes(body)
    return file


# -- they connect to the broker --------------------------------------------------------------------------


def test_a_sub_receives_from_other_dialects(broker: Broker, room: Room, cat: Cat, scheme: str) -> None:
    with cat.subscriber("connect", url_of(broker, "nanomsg.pub", scheme)) as listener:
        wait_until_received(room, listener)
        expect_other_dialects(room, listener)


def expect_other_dialects(room: Room, listener: Listener) -> None:
    room.send_as_controller(room.controller(), "orders.new für alle\n".encode())
    room.simplest(pub("orders.raw", EVERY_BYTE) + pub("orders.none") + pub("orders.long", EVERY_BYTE * 1200))
    assert listener.receives_after(PRELUDE) == "orders.new|für alle".encode()
    assert listener.receives() == b"orders.raw|" + EVERY_BYTE
    assert listener.receives() == b"orders.none|"
    assert listener.receives() == b"orders.long|" + EVERY_BYTE * 1200


def test_a_pub_publishes_to_other_dialects(
    broker: Broker, room: Room, cat: Cat, scheme: str, tmp_path: Path
) -> None:
    client, subscriber = room.client(b"unsubscribe all\nsubscribe orders\n"), room.simplest(b"sub orders\n")
    file = body_in(tmp_path, b"orders|" + EVERY_BYTE)
    with cat.publisher("connect", url_of(broker, "nanomsg.sub", scheme), file):
        client.expect(b"orders!%b\n" % EVERY_BYTE.replace(b"\n", b"\\n"))
        subscriber.expect(pub("orders", EVERY_BYTE))


@pytest.mark.parametrize(("publishing", "subscribing"), [(NANOCAT, NNGCAT), (NNGCAT, NANOCAT)], ids=str)
@pytest.mark.parametrize("body", [b"no topic", b"|topic missing", b"topic|", b"a|b|c", b"\xff|no UTF-8"], ids=repr)
def test_a_body_is_the_same_at_the_other_end(
    broker: Broker, room: Room, publishing: Cat, subscribing: Cat, body: bytes, tmp_path: Path
) -> None:
    with subscribing.subscriber("connect", url_of(broker, "nanomsg.pub", "tcp")) as listener:
        wait_until_received(room, listener)
        with publishing.publisher("connect", url_of(broker, "nanomsg.sub", "tcp"), body_in(tmp_path, body)):
            assert listener.receives_after(PRELUDE) == body


def test_the_largest_message(broker: Broker, room: Room, cat: Cat, scheme: str, tmp_path: Path) -> None:
    body = (b"large|" + EVERY_BYTE * (LARGEST_BYTES // 256))[:LARGEST_BYTES]
    with cat.subscriber("connect", url_of(broker, "nanomsg.pub", scheme)) as listener:
        wait_until_received(room, listener)
        with cat.publisher("connect", url_of(broker, "nanomsg.sub", scheme), body_in(tmp_path, body)):
            assert listener.receives_after(PRELUDE) == body


def test_an_address_without_a_path(broker: Broker, room: Room, cat: Cat) -> None:
    """`ws://127.0.0.1:8080` with nothing behind it: nng then requests no path at all, not even `/`."""
    with cat.subscriber("connect", url_of(broker, "nanomsg.pub", "ws").rstrip("/")) as listener:
        wait_until_received(room, listener)
        room.simplest(pub("news", b"here"))
        assert listener.receives_after(PRELUDE) == b"news|here"


def test_a_burst(broker: Broker, room: Room, scheme: str) -> None:
    """nanocat stops reading when it falls behind; nngcat drops messages, so it cannot be tested."""
    with NANOCAT.subscriber("connect", url_of(broker, "nanomsg.pub", scheme)) as listener:
        wait_until_received(room, listener)
        room.simplest(b"".join(pub("count", b"%d" % number) for number in range(BURST)))
        received = [listener.receives_after(PRELUDE), *(listener.receives() for _ in range(BURST - 1))]
        assert received == [b"count|%d" % number for number in range(BURST)]


def test_a_sub_with_prefixes(broker: Broker, room: Room, cat: Cat, scheme: str) -> None:
    """The choice is made on its own side."""
    url = url_of(broker, "nanomsg.pub", scheme)
    with cat.subscriber("connect", url, "orders.eu", "news|breaking", "prelude") as listener:
        wait_until_received(room, listener)
        room.simplest(
            pub("orders.us", b"1") + pub("orders.eu", b"2") + pub("news", b"old") + pub("news", b"breaking!")
        )
        assert [listener.receives_after(PRELUDE), listener.receives()] == [b"orders.eu|2", b"news|breaking!"]


def test_a_sub_outlives_the_broker(cat: Cat, scheme: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It dials again by itself, unless it receives a close frame."""
    url = url_for(scheme, tmp_path_factory.mktemp("ipc"))
    listen = f"http={url.replace('ws', 'tcp', 1)}" if scheme == "ws" else f"nanomsg.pub={url}"
    with cat.subscriber("connect", f"{url}/" if scheme == "ws" else url) as listener:
        for number in range(2):
            with Broker(f"--listen={listen}") as broker, Room(broker) as room:
                wait_until_received(room, listener)
                room.simplest(pub("broker", b"%d" % number))
                assert listener.receives_after(PRELUDE) == b"broker|%d" % number


REFUSED = [
    ("pub", "nanomsg.pub", "a socket of PUB where only SUB sockets can connect"),
    ("sub", "nanomsg.sub", "a socket of SUB where only PUB sockets can connect"),
    ("pull", "nanomsg.pub", "a socket of type 0051 where only SUB sockets can connect"),
]


@pytest.mark.parametrize(("kind", "place", "reason"), REFUSED)
def test_a_socket_of_the_wrong_kind(
    broker: Broker, room: Room, cat: Cat, kind: str, place: str, reason: str, tmp_path: Path
) -> None:
    url = url_of(broker, place, "tcp")
    with cat.subscriber("connect", url_of(broker, "nanomsg.pub", "tcp")) as witness:
        wait_until_received(room, witness)
        with cat.socket(kind, url, body_in(tmp_path, b"refused|")):
            broker.wait_for_log(reason)
            room.simplest(pub("still", b"here"))
            assert witness.receives_after(PRELUDE) == b"still|here"


# -- the broker connects to them -------------------------------------------------------------------------


def test_the_broker_dials_a_pub_and_a_sub(
    cat: Cat, scheme: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source, target = (url_for(scheme, tmp_path_factory.mktemp("ipc")) for _ in range(2))
    with (
        Broker(f"--connect=nanomsg.sub={source}", f"--connect=nanomsg.pub={target}") as broker,
        Room(broker) as room,
        cat.subscriber("bind", target) as listener,
    ):
        subscriber = room.simplest(b"sub from/pub\n")
        wait_until_received(room, listener)
        expect_other_dialects(room, listener)
        with cat.publisher("bind", source, body_in(tmp_path, b"from/pub|" + EVERY_BYTE)):
            assert listener.receives() == b"from/pub|" + EVERY_BYTE
            subscriber.expect(pub("from/pub", EVERY_BYTE))


def test_the_broker_dials_again(scheme: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first one is killed; the broker finds another in its place."""
    url = url_for(scheme, tmp_path_factory.mktemp("ipc"))
    with Broker(f"--connect=nanomsg.pub={url}") as broker, Room(broker) as room:
        for cat in CATS:
            with cat.subscriber("bind", url) as listener:
                wait_until_received(room, listener)
                room.simplest(pub("news", b"here"))
                assert listener.receives_after(PRELUDE) == b"news|here"
