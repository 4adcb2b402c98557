"""The broker dials: as SUB to remote PUBs and as PUB to remote SUBs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.links import free_port
from kit.nanomsg import (
    PUB,
    SUB,
    Listening,
    TakenPeer,
    message,
    publish_until_received,
    read_masked,
    to_response,
    typed,
)
from kit.proxy import Proxy
from kit.room import Room
from kit.websocket import BINARY, CLOSE, FIN, PING, PONG, TEXT
from kit.websocket import frame as websocket_frame

PUB_PROTOCOL, SUB_PROTOCOL = "pub.sp.nanomsg.org", "sub.sp.nanomsg.org"
SCHEMES: dict[str, Callable[[bytes], bytes]] = {"tcp": message, "ipc": typed}


def frame(payload: bytes, opcode: int = BINARY) -> bytes:
    """As a server sends it: without a mask."""
    return websocket_frame(opcode, payload, mask=b"")


each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def place(scheme: str, folder: Path) -> Listening:
    return Listening(f"ipc://{folder}/peer" if scheme == "ipc" else f"{scheme}://127.0.0.1:0")


def connected(address: str, role: str, *flags: str) -> Broker:
    return Broker(f"--connect=nanomsg.{role}={address}", *flags)


def greeted(place: Listening, theirs: bytes, ours: bytes) -> TakenPeer:
    """A connection that the broker dialled, after both handshakes."""
    peer = place.accept()
    peer.expect(theirs)
    peer.send(ours)
    return peer


def last_counters(broker: Broker, listener: str) -> str:
    broker.stop()
    return next(line for line in broker.log().splitlines() if f" {listener}: accepted" in line)


# -- both roles ------------------------------------------------------------------------------------------


@each_scheme
def test_the_broker_subscribes_to_a_remote_pub(scheme: str, tmp_path: Path) -> None:
    with (
        place(scheme, tmp_path) as remote,
        connected(remote.address, "sub") as broker,
        Room(broker) as room,
        greeted(remote, SUB, PUB) as peer,
    ):
        client = room.simplest(b"sub foo\n")
        write = SCHEMES[scheme]
        peer.send(write(b"foo|1") + write(b"nothing") + write(b"foo|2"))
        client.expect(pub("foo", b"1") + pub("foo", b"2"))
        broker.wait_for_log(f"nanomsg.sub {remote.address}: connected")
        assert "accepted 1, messages_in 3" in last_counters(broker, "nanomsg.sub")


@each_scheme
def test_the_broker_publishes_to_a_remote_sub(scheme: str, tmp_path: Path) -> None:
    with (
        place(scheme, tmp_path) as remote,
        connected(remote.address, "pub") as broker,
        Room(broker) as room,
        greeted(remote, PUB, SUB) as peer,
    ):
        room.simplest(pub("foo", b"1") + pub("bar", b"2"))
        write = SCHEMES[scheme]
        peer.expect(write(b"foo|1") + write(b"bar|2"))
        assert "accepted 1" in last_counters(broker, "nanomsg.pub")


def test_several_dialled_peers_and_listeners() -> None:
    with (
        Listening() as one,
        Listening() as two,
        Broker(
            f"--connect=nanomsg.sub={one.address}",
            f"--connect=nanomsg.sub={two.address}",
            listen=(*ALL, "nanomsg.pub"),
        ) as broker,
        greeted(one, SUB, PUB) as first,
        greeted(two, SUB, PUB) as second,
        broker.connect("nanomsg.pub") as sub,
    ):
        sub.expect(PUB)
        sub.send(SUB)
        first.send(message(b"x|1"))
        sub.expect(message(b"x|1"))
        second.send(message(b"x|2"))
        sub.expect(message(b"x|2"))


def test_a_prefix_for_a_remote_sub() -> None:
    with (
        Listening() as remote,
        connected(f"{remote.address}?prefix=hea", "pub") as broker,
        Room(broker) as room,
        greeted(remote, PUB, SUB) as peer,
    ):
        room.simplest(pub("other", b"1") + pub("heart", b"2"))
        peer.expect(message(b"heart|2"))


# -- WebSocket -------------------------------------------------------------------------------------------


def test_it_subscribes_to_a_remote_pub_over_websocket() -> None:
    with (
        Listening("ws://127.0.0.1:0/some/path") as remote,
        connected(remote.address, "sub") as broker,
        Room(broker) as room,
        remote.accept_websocket(PUB_PROTOCOL) as peer,
    ):
        client = room.simplest(b"sub foo\n")
        peer.send(frame(b"foo|1") + frame(b"foo|" + b"x" * 200)[:100])
        client.expect(pub("foo", b"1"))
        peer.send(frame(b"foo|" + b"x" * 200)[100:] + frame(b"ping", PING))
        client.expect(pub("foo", b"x" * 200))
        assert read_masked(peer) == (FIN | PONG, b"ping")


def test_it_publishes_to_a_remote_sub_over_websocket() -> None:
    with (
        Listening("ws://127.0.0.1:0") as remote,
        connected(remote.address, "pub") as broker,
        Room(broker) as room,
        remote.accept_websocket(SUB_PROTOCOL) as peer,
    ):
        publish_until_received(room, peer)
        room.simplest(pub("foo", b"1") + pub("foo", b"x" * 200))
        while (found := read_masked(peer)) == (FIN | BINARY, b"heard?|"):
            pass
        assert found == (FIN | BINARY, b"foo|1")
        assert read_masked(peer) == (FIN | BINARY, b"foo|" + b"x" * 200)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
        (to_response("bm9uc2Vuc2U=", PUB_PROTOCOL), "another request"),
        (b"\x00SP\x00\x00\x20\x00\x00\r\n\r\n", "not HTTP"),
        (b"x" * 20_000, "no end"),
    ],
    ids=["404", "a wrong key", "no HTTP", "endless"],
)
def test_an_invalid_response_to_the_websocket_upgrade(response: bytes, reason: str) -> None:
    with Listening("ws://127.0.0.1:0") as remote, connected(remote.address, "sub") as broker:
        with remote.accept() as peer:
            peer.read_until(b"\r\n\r\n")
            peer.send(response)
            assert peer.expect_closed() == b""
        broker.wait_for_log(reason)
        remote.accept().close()  # the broker dials again


def test_a_websocket_upgrade_to_another_subprotocol() -> None:
    with Listening("ws://127.0.0.1:0") as remote, connected(remote.address, "sub") as broker:
        with remote.accept_websocket(PUB_PROTOCOL, agreed="chat") as peer:
            peer.expect_closed()
        broker.wait_for_log("sub-protocol")


def test_a_text_frame_from_a_remote_pub() -> None:
    with (
        Listening("ws://127.0.0.1:0") as remote,
        connected(remote.address, "sub") as broker,
        remote.accept_websocket(PUB_PROTOCOL) as peer,
    ):
        peer.send(frame(b"foo|1", TEXT))
        first, payload = read_masked(peer)
        assert (first, payload[:2]) == (FIN | CLOSE, (1003).to_bytes(2, "big"))
        broker.wait_for_log("a text frame")


# -- reconnecting ----------------------------------------------------------------------------------------


@each_scheme
def test_a_peer_that_starts_later_is_dialled_until_it_listens(scheme: str, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/peer" if scheme == "ipc" else f"tcp://127.0.0.1:{free_port()}"
    with connected(address, "sub") as broker, Room(broker) as room:
        broker.wait_for_log(f"nanomsg.sub {address}: ")
        with Listening(address) as remote, greeted(remote, SUB, PUB) as peer:
            client = room.simplest(b"sub x\n")
            peer.send(SCHEMES[scheme](b"x|1"))
            client.expect(pub("x", b"1"))


def test_a_peer_that_restarts_is_dialled_again() -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with connected(address, "sub") as broker, Room(broker) as room:
        client = room.simplest(b"sub x\n")
        for number in (b"1", b"2", b"3"):
            with Listening(address) as remote, greeted(remote, SUB, PUB) as peer:
                peer.send(message(b"x|" + number))
                client.expect(pub("x", number))
        broker.wait_for_log(f"nanomsg.sub {address}: connection lost; dialling again")


def test_a_lost_connection_is_dialled_again() -> None:
    with (
        Listening() as remote,
        Proxy(int(remote.address.rpartition(":")[2])) as proxy,
        connected(f"tcp://127.0.0.1:{proxy.port}", "pub") as broker,
        Room(broker) as room,
    ):
        with greeted(remote, PUB, SUB) as peer:
            room.simplest(pub("x", b"0"))
            peer.expect(message(b"x|0"))
        proxy.cut()
        broker.wait_for_log("connection lost; dialling again")
        proxy.restore()
        with greeted(remote, PUB, SUB) as peer:
            room.simplest(pub("x", b"1"))
            peer.expect(message(b"x|1"))


def test_a_peer_of_the_wrong_type_is_dialled_again_with_a_reason_in_the_log() -> None:
    with Listening() as remote, connected(remote.address, "sub") as broker:
        for _ in range(3):
            with greeted(remote, SUB, SUB) as peer:
                assert peer.expect_closed() == b""
        broker.wait_for_log("a socket of SUB where only PUB sockets can connect")


def test_two_brokers() -> None:
    with (
        Broker(listen=(*ALL, "nanomsg.pub")) as first,
        connected(f"tcp://127.0.0.1:{first.ports['nanomsg.pub']}", "sub") as second,
        Room(first) as here,
        Room(second) as there,
    ):
        client = there.simplest(b"sub x\n")
        publish_until_received(here, client, name="x")
        here.simplest(pub("x", b"after"))
        client.read_until(pub("x", b"after"))


def test_the_broker_stops_while_it_dials() -> None:
    with connected(f"tcp://127.0.0.1:{free_port()}", "sub") as broker:
        assert broker.stop() == 0


def test_an_invalid_host_is_logged() -> None:
    with Broker("--connect=nanomsg.sub=tcp://a..b:5555", listen=("simplest",)) as broker:
        broker.wait_for_log("retrying until it succeeds")
