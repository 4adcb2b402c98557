"""Links that break and are dialled again."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

from kit.broker import ALL, Broker
from kit.frames import pub
from kit.links import expect_delivered, free_port, wait_for_links
from kit.proxy import RESET, Proxy
from kit.room import Room
from kit.wire import wait_for

LISTEN = (*ALL, "simplest.peer")


def at(port: int) -> Broker:
    return Broker(f"--listen=simplest.peer=tcp://127.0.0.1:{port}", "-v", listen=ALL)


def test_a_peer_that_restarts_is_dialled_again() -> None:
    with Broker(listen=LISTEN) as first:
        port = first.ports["simplest.peer"]
        with Broker(f"--peer=127.0.0.1:{port}", listen=LISTEN) as dialling:
            expect_delivered(first, dialling, "x", b"before")
            first.stop()
            dialling.wait_for_log("connection lost; dialling again")
            with at(port) as second:
                expect_delivered(second, dialling, "x", b"after")
                expect_delivered(dialling, second, "x", b"back")


def test_a_missing_peer_is_dialled_until_it_accepts() -> None:
    port = free_port()
    with Broker(f"--peer=127.0.0.1:{port}", listen=LISTEN) as dialling:
        dialling.wait_for_log(f"simplest.peer tcp://127.0.0.1:{port}: ")
        with at(port) as late:
            expect_delivered(late, dialling, "x", b"1")


def test_a_peer_that_hangs_up_at_once_is_dialled_again_and_again() -> None:
    with HangingUp() as peer, Broker(f"--peer=127.0.0.1:{peer.port}", listen=LISTEN):
        wait_for(lambda: peer.calls >= 5, "the fifth call")


class HangingUp:
    """A peer that resets every connection at once."""

    def __enter__(self) -> HangingUp:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.calls = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                with self._listening.accept()[0] as caller:
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self.calls += 1


def test_a_broken_link_does_not_disturb_clients() -> None:
    with (
        Broker("-v", listen=LISTEN) as first,
        Proxy(first.ports["simplest.peer"]) as proxy,
        Broker(f"--peer=127.0.0.1:{proxy.port}", listen=LISTEN) as second,
        Room(second) as room,
    ):
        client = room.simplest(b"sub x\n")
        proxy.wait_until_carried(b"sub x\n")
        proxy.cut()
        room.simplest(pub("x", b"1"))
        client.expect(pub("x", b"1"))
        wait_for_links(first, 0)
        proxy.restore()
        expect_delivered(first, second, "y", b"1")


def test_two_that_dial_each_other_keep_one_link_and_use_the_other_when_it_breaks() -> None:
    ports = free_port(), free_port()
    with Proxy(ports[0]) as to_first, Proxy(ports[1]) as to_second:
        peer_flag = "--listen=simplest.peer=tcp://127.0.0.1:{}"
        first = Broker(peer_flag.format(ports[0]), f"--peer=127.0.0.1:{to_second.port}", "-v")
        second = Broker(peer_flag.format(ports[1]), f"--peer=127.0.0.1:{to_first.port}", "-v")
        with first, second:
            wait_for(lambda: "leads to the same broker" in first.log() + second.log(), "one of two links to end")
            for broker in (first, second):
                wait_for_links(broker, 1)
            expect_delivered(first, second, "x", b"there")
            expect_delivered(second, first, "x", b"and back")
            remaining = to_second if "leads to the same broker" in second.log() else to_first
            remaining.cut()
            expect_delivered(first, second, "x", b"there again")
            expect_delivered(second, first, "x", b"and back again")


def test_a_broker_detects_a_link_to_itself() -> None:
    port = free_port()
    with Broker(f"--listen=simplest.peer=tcp://127.0.0.1:{port}", f"--peer=127.0.0.1:{port}", "-v") as broker:
        broker.wait_for_log("it leads to this broker")
        wait_for_links(broker, 0)
        with Room(broker) as room:
            client = room.simplest(b"sub x\n")
            room.simplest(pub("x", b"once"))
            client.expect(pub("x", b"once"))
            room.expect_quiet(client)
        assert broker.log().count(": connected") == 1


def test_two_addresses_of_one_peer_make_one_link() -> None:
    with Broker("-v", listen=LISTEN) as target, Proxy(target.ports["simplest.peer"]) as detour:
        peers = (f"--peer=127.0.0.1:{target.ports['simplest.peer']}", f"--peer=127.0.0.1:{detour.port}")
        with Broker(*peers, "-v", listen=LISTEN) as dialling:
            dialling.wait_for_log("leads to the same broker")
            for broker in (target, dialling):
                wait_for_links(broker, 1)
            expect_delivered(target, dialling, "x", b"1")
            expect_delivered(dialling, target, "x", b"2")
