"""`nanomsg` over tcp and ipc, by handwritten sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.nanomsg import PUB, SUB, FilePeer, message, typed
from kit.room import Room
from kit.wire import GUARD_SECONDS, Peer

LISTEN = (*ALL, "nanomsg.pub", "nanomsg.sub")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("ipc")
    files = [f"--listen=nanomsg.{role}=ipc://{folder}/{role}" for role in ("pub", "sub")]
    with Broker(*files, listen=LISTEN) as running:
        yield running


def path_of(broker: Broker, listener: str) -> str:
    found = (address for name, address in broker.addresses if name == listener and address.startswith("ipc:"))
    return next(found).removeprefix("ipc://")


def publisher(broker: Broker) -> Peer:
    peer = broker.connect("nanomsg.sub")
    peer.send(PUB)
    peer.expect(SUB)
    return peer


def subscriber(broker: Broker) -> Peer:
    """The subscription is in force when the header of the broker arrives."""
    peer = broker.connect("nanomsg.pub")
    peer.send(SUB)
    peer.expect(PUB)
    return peer


def file_publisher(broker: Broker) -> Peer:
    peer = FilePeer(path_of(broker, "nanomsg.sub"))
    peer.send(PUB)
    peer.expect(SUB)
    return peer


def file_subscriber(broker: Broker) -> Peer:
    peer = FilePeer(path_of(broker, "nanomsg.pub"))
    peer.send(SUB)
    peer.expect(PUB)
    return peer


BODIES = [
    b"foo|Hello!",
    b"foo|a|b",
    b"foo|",
    b"",
    b"no topic",
    b"|leading",
    b"||",
    b"\xff\xfe|not UTF-8",
    b"t" * 1025 + b"|too long for a topic",
    "caf\xe9|ü".encode(),
    bytes(range(256)) * 16,
]


# -- messages --------------------------------------------------------------------------------------------


def test_both_headers_are_sent_at_once(broker: Broker) -> None:
    with broker.connect("nanomsg.pub") as one, broker.connect("nanomsg.sub") as two:
        one.expect(PUB)
        two.expect(SUB)


def test_bodies_are_the_same_on_all_transports(broker: Broker) -> None:
    with (
        publisher(broker) as tcp,
        file_publisher(broker) as ipc,
        subscriber(broker) as by_tcp,
        file_subscriber(broker) as by_ipc,
    ):
        tcp.send(b"".join(map(message, BODIES)))
        by_tcp.expect(b"".join(map(message, BODIES)))
        by_ipc.expect(b"".join(map(typed, BODIES)))
        ipc.send(b"".join(map(typed, BODIES)))
        by_tcp.expect(b"".join(map(message, BODIES)))
        by_ipc.expect(b"".join(map(typed, BODIES)))


def test_the_header_and_messages_may_come_in_one_piece_or_byte_by_byte(broker: Broker) -> None:
    with (
        subscriber(broker) as sub,
        broker.connect("nanomsg.sub") as one,
        broker.connect("nanomsg.sub") as two,
    ):
        one.send(PUB + message(b"a|1") + message(b"b|2"))
        sub.expect(message(b"a|1") + message(b"b|2"))
        for byte in PUB + message(b"c|3"):
            two.send(bytes([byte]))
        sub.expect(message(b"c|3"))


def test_a_large_message(broker: Broker) -> None:
    body = b"large|" + b"x" * (1024 * 1024 - 6)
    with publisher(broker) as pub_, subscriber(broker) as sub, file_subscriber(broker) as file:
        pub_.send(message(body) + message(b"after|1"))
        sub.expect(message(body) + message(b"after|1"))
        file.expect(typed(body) + typed(b"after|1"))


def test_from_nanomsg_to_others(broker: Broker, room: Room) -> None:
    simplest, fanout = room.simplest(b"sub foo\n"), room.client(b"subscribe foo\n")
    with publisher(broker) as pub_:
        pub_.send(message(b"foo|Hello!") + message(b"nothing") + message(b"foo|a|b"))
        simplest.expect(pub("foo", b"Hello!") + pub("foo", b"a|b"))
        fanout.expect(b"foo!Hello!\nfoo!a|b\n")


def test_from_others_to_nanomsg(broker: Broker, room: Room) -> None:
    with subscriber(broker) as sub, file_subscriber(broker) as file:
        room.simplest(pub("a|b", b"1") + pub("a%20b", b""))
        room.send_as_controller(room.controller(), b"x y z\n")
        expected = [b"a|b|1", b"a%20b|", b"x|y z"]
        sub.expect(b"".join(map(message, expected)))
        file.expect(b"".join(map(typed, expected)))


def test_events_of_the_broker_are_not_delivered_to_subs(broker: Broker) -> None:
    with subscriber(broker) as sub, publisher(broker) as pub_:
        pub_.send(message(b"polycast/events/x|1") + message(b"x|2"))
        sub.expect(message(b"x|2"))


def test_a_publisher_gets_nothing_but_the_header(broker: Broker) -> None:
    with publisher(broker) as pub_, subscriber(broker) as sub:
        pub_.send(message(b"x|1"))
        sub.expect(message(b"x|1"))
        pub_.shut()
        assert pub_.expect_closed() == b""


# -- a fixed prefix, another separator, limits -----------------------------------------------------------


def test_a_listener_with_a_prefix() -> None:
    with (
        Broker("--listen=nanomsg.pub=tcp://127.0.0.1:0?prefix=hea", listen=(*ALL, "nanomsg.sub")) as broker,
        subscriber(broker) as sub,
        publisher(broker) as pub_,
    ):
        bodies = [b"other|1", b"hea|2", b"he|3", b"|hea", b"hea", b"heart|4"]
        pub_.send(b"".join(map(message, bodies)))
        sub.expect(message(b"hea|2") + message(b"heart|4"))


def test_another_separator() -> None:
    with (
        Broker("--set=nanomsg.separator=:", listen=LISTEN) as broker,
        Room(broker) as room,
        publisher(broker) as pub_,
        broker.connect("nanomsg.pub") as sub,
    ):
        sub.send(SUB)
        simplest = room.simplest(b"sub \n")
        pub_.send(message(b"a|b:c"))
        simplest.expect(pub("a|b", b"c"))


def test_a_message_above_the_limit_costs_its_connection_by_its_size_alone() -> None:
    with (
        Broker("--set=nanomsg.message_bytes=10", listen=LISTEN) as broker,
        publisher(broker) as bad,
        publisher(broker) as good,
        subscriber(broker) as sub,
    ):
        good.send(message(b"123456789|"))
        sub.expect(message(b"123456789|"))
        bad.send(message(b"x" * 11)[:8])
        assert bad.expect_closed() == b""
        log = broker.wait_for_log("nanomsg.message_bytes")
        assert "a message of 11 exceeds the limit of 10" in log
        good.send(message(b"still|1"))
        sub.expect(message(b"still|1"))


def test_a_payload_above_the_limit_is_measured_without_its_topic() -> None:
    with Broker("--set=limits.payload_bytes=10", listen=LISTEN) as broker, publisher(broker) as bad:
        bad.send(message(b"abc|0123456789x"))
        assert bad.expect_closed() == b""
        assert "a payload of 11 exceeds the limit of 10" in broker.wait_for_log("limits.payload_bytes")


# -- bad input -------------------------------------------------------------------------------------------

BAD_HEADERS = {
    "bad magic": (b"\0SQ\0\0\x20\0\0", "not the start of nanomsg"),
    "another version": (b"\0SP\1\0\x20\0\0", "not the start of nanomsg"),
    "http": (b"GET / HTTP/1.1\r\n", "not the start of nanomsg"),
    "no type of ours": (b"\0SP\0\0\x10\0\0", "a socket of type 0010"),
    "reserved bytes": (b"\0SP\0\0\x20\0\1", "reserved bytes"),
    "other reserved byte": (b"\0SP\0\0\x20\1\0", "reserved bytes"),
}


@pytest.mark.parametrize("header", BAD_HEADERS)
@pytest.mark.parametrize("listener", ["nanomsg.pub", "nanomsg.sub"])
def test_a_bad_header(header: str, listener: str, broker: Broker, room: Room) -> None:
    text, reason = BAD_HEADERS[header]
    if listener == "nanomsg.pub":
        text = text.replace(b"\x20\0\1", b"\x21\0\1").replace(b"\x20\1\0", b"\x21\1\0")
    with subscriber(broker) as witness, broker.connect(listener) as bad:
        bad.send(text)
        assert bad.expect_closed() in (PUB, SUB)
        broker.wait_for_log(reason)
        room.simplest(pub("x", b"1"))
        witness.expect(message(b"x|1"))


@pytest.mark.parametrize(("listener", "own", "word"), [("nanomsg.pub", PUB, "PUB"), ("nanomsg.sub", SUB, "SUB")])
def test_a_socket_of_the_wrong_type(listener: str, own: bytes, word: str, broker: Broker) -> None:
    with broker.connect(listener) as bad:
        bad.send(own)
        assert bad.expect_closed() == own
        broker.wait_for_log(f"a socket of {word} where only")


@pytest.mark.parametrize("text", [message(b"x|1"), b"\0", b"hello"])
def test_a_sub_that_speaks_loses_its_connection(text: bytes, broker: Broker, room: Room) -> None:
    with subscriber(broker) as bad, subscriber(broker) as witness:
        bad.send(text)
        bad.expect_closed()
        broker.wait_for_log("from a SUB socket, which must not send")
        room.simplest(pub("x", b"1"))
        witness.expect(message(b"x|1"))


def test_a_message_over_ipc_without_its_type(broker: Broker, room: Room) -> None:
    with file_publisher(broker) as bad, file_subscriber(broker) as witness:
        bad.send(typed(b"x|1") + message(b"x|2"))
        bad.expect_closed()
        broker.wait_for_log("00 as the type of a message")
        witness.expect(typed(b"x|1"))
        room.simplest(pub("x", b"3"))
        witness.expect(typed(b"x|3"))


def test_half_a_message_at_the_end_is_nothing(broker: Broker, room: Room) -> None:
    with publisher(broker) as half, subscriber(broker) as sub:
        half.send(message(b"x|1") + message(b"x|2")[:-1])
        half.shut()
        half.expect_closed()
        room.simplest(pub("x", b"3"))
        sub.expect(message(b"x|1") + message(b"x|3"))


@pytest.mark.parametrize("listener", ["nanomsg.pub", "nanomsg.sub"])
def test_a_peer_without_a_header_times_out(listener: str) -> None:
    with (
        Broker("--set=limits.handshake_seconds=0.1", listen=LISTEN) as broker,
        broker.connect(listener) as silent,
        broker.connect(listener) as slow,
    ):
        slow.send(PUB[:5])
        assert silent.expect_closed() in (PUB, SUB)
        slow.expect_closed()
        assert "no handshake within 0.1 s" in broker.log()


# -- the socket file -------------------------------------------------------------------------------------


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    flags = [f"--listen=nanomsg.sub=ipc://{tmp_path}/sub"]
    with Broker(*flags) as first:
        first.exit_code = -9
        first.process.kill()
        first.process.wait(GUARD_SECONDS)
        assert (tmp_path / "sub").exists()
        with Broker(*flags) as second, Room(second) as room, file_publisher(second) as pub_:
            received = room.simplest(b"sub x\n")
            pub_.send(typed(b"x|1"))
            received.expect(pub("x", b"1"))
