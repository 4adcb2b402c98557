"""`nanomsg` over WebSockets of the http listener, by handwritten sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.nanomsg import PUB, SUB, message, publish_until_received
from kit.room import Room
from kit.websocket import BINARY, TEXT, WebSocket, frame, upgrade

PUB_PROTOCOL, SUB_PROTOCOL = "pub.sp.nanomsg.org", "sub.sp.nanomsg.org"
BODIES = [b"foo|Hello!", b"", b"no topic", b"|leading", b"\xff|not UTF-8", b"foo|" + b"x" * 300]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(listen=(*ALL, "nanomsg.pub", "nanomsg.sub", "http")) as running:
        yield running


def subscriber(broker: Broker, path: str = "/") -> WebSocket:
    """The subscription is in force when the upgrade is accepted."""
    return WebSocket(broker.ports["http"], path, PUB_PROTOCOL)


def publisher(broker: Broker, path: str = "/") -> WebSocket:
    return WebSocket(broker.ports["http"], path, SUB_PROTOCOL)


@pytest.mark.parametrize("path", ["/", "/any/path", "/ubre"])
def test_the_sub_protocol_decides_on_any_path(path: str, broker: Broker) -> None:
    with subscriber(broker, path) as sub, publisher(broker, path) as pub_:
        for body in BODIES:
            pub_.send_binary(body)
            sub.expect_binary(body)


def test_one_of_several_sub_protocols(broker: Broker) -> None:
    port = broker.ports["http"]
    with WebSocket(port, "/", f"x, {SUB_PROTOCOL}, y", SUB_PROTOCOL) as pub_, subscriber(broker) as sub:
        pub_.send_binary(b"a|1")
        sub.expect_binary(b"a|1")


@pytest.mark.parametrize("protocol", ["", "pair.sp.nanomsg.org", "PUB"])
def test_an_unknown_sub_protocol(protocol: str, broker: Broker) -> None:
    with broker.connect("http") as peer:
        peer.send(upgrade("/", protocol))
        assert peer.read_until(b"\r\n").startswith(b"HTTP/1.1 400 ")


def test_between_websocket_and_tcp(broker: Broker) -> None:
    with (
        subscriber(broker) as by_websocket,
        publisher(broker) as websocket,
        broker.connect("nanomsg.pub") as by_tcp,
        broker.connect("nanomsg.sub") as tcp,
    ):
        by_tcp.expect(PUB)
        by_tcp.send(SUB)
        tcp.send(PUB)
        for body in BODIES:
            websocket.send_binary(body)
            by_tcp.expect(message(body))
            by_websocket.expect_binary(body)
            tcp.send(message(body))
            by_tcp.expect(message(body))
            by_websocket.expect_binary(body)


def test_many_messages_in_one_read_keep_their_order(broker: Broker, room: Room) -> None:
    bodies = [b"%d|%d" % (number % 3, number) for number in range(200)]
    with subscriber(broker) as sub, publisher(broker) as pub_:
        client = room.simplest(b"sub 1\n")
        pub_.send(b"".join(frame(BINARY, body) for body in bodies))
        sub.expect(b"".join(frame(BINARY, body, mask=b"") for body in bodies))
        client.expect(b"".join(pub("1", b"%d" % number) for number in range(1, 200, 3)))


def test_from_others(broker: Broker, room: Room) -> None:
    with subscriber(broker) as sub:
        room.simplest(pub("a", b"1") + pub("polycast/x", b"2") + pub("b", b"x" * 70_000))
        sub.expect_binary(b"a|1")
        sub.expect_binary(b"b|" + b"x" * 70_000)


# -- bad input -------------------------------------------------------------------------------------------


def check_witness(witness: WebSocket, room: Room) -> None:
    room.simplest(pub("x", b"witness"))
    witness.expect_binary(b"x|witness")


@pytest.mark.parametrize("join", [subscriber, publisher])
def test_text(join: Callable[[Broker], WebSocket], broker: Broker, room: Room) -> None:
    with join(broker) as bad, subscriber(broker) as witness:
        bad.send(frame(TEXT, b"a|1"))
        bad.expect_close(1003)
        broker.wait_for_log("a text frame where only binary frames are messages")
        check_witness(witness, room)


def test_a_message_above_the_limit(broker: Broker, room: Room) -> None:
    with publisher(broker) as bad, subscriber(broker) as witness:
        bad.send(frame(BINARY, b"x" * (1024 * 1024 + 1))[:14])
        bad.expect_close(1009)
        broker.wait_for_log("nanomsg.message_bytes")
        check_witness(witness, room)


def test_data_from_a_sub(broker: Broker, room: Room) -> None:
    with subscriber(broker) as bad, subscriber(broker) as witness:
        bad.send_binary(b"a|1")
        bad.expect_close(1008)
        broker.wait_for_log("from a SUB socket, which must not send")
        check_witness(witness, room)


def test_a_ping_gets_a_pong(broker: Broker) -> None:
    with subscriber(broker) as sub, publisher(broker) as pub_:
        sub.flush()
        pub_.flush()


def test_counted_as_nanomsg_on_the_http_listener() -> None:
    with Broker(listen=("http",)) as broker:
        with publisher(broker) as pub_:
            pub_.send_binary(b"a|1")
            pub_.flush()
        broker.stop()
        assert "http (nanomsg): accepted 1, messages_in 1" in broker.log()


def test_two_brokers_over_websocket() -> None:
    with Broker(listen=("simplest", "fanout.client", "http")) as remote:
        pub_, sub = (f"--connect=nanomsg.{role}=ws://127.0.0.1:{remote.ports['http']}" for role in ("pub", "sub"))
        with Broker(sub) as receiving, Broker(pub_) as sending, Room(receiving) as there:
            client = there.simplest(b"sub x\n")
            with Room(sending) as here:
                publish_until_received(here, client, name="x")
                here.simplest(pub("x", b"last"))
                client.read_until(pub("x", b"last"))
