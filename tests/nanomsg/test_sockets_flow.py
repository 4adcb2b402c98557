"""Slow peers: a PUB drops messages for them, a SUB slows its publishers (backpressure)."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kit.nanomsg import PUB as PUB_HEADER
from kit.nanomsg import SUB as SUB_HEADER
from kit.nanomsg import message
from kit.wire import GUARD_SECONDS, Peer, wait_for
from nanomsg.socket_pairs import SCHEMES, pair, place, port_of, take
from polycast.nanomsg import PUB, SUB, Socket


def test_only_a_slow_subscriber_misses_messages() -> None:
    body = b"x" * 10_000
    with Socket(PUB, queue_bytes=100_000, linger_seconds=GUARD_SECONDS) as pub, Socket(SUB) as good:
        url = pub.bind("tcp://127.0.0.1:0")
        good.subscribe(b"")
        good.connect(url)
        with Peer(port_of(url), receive_bytes=4096) as slow:
            slow.send(SUB_HEADER)
            pub.wait_for_peers(2, GUARD_SECONDS)
            sent = 0
            while not pub.missed:
                pub.send(b"%08d" % sent + body)
                assert good.recv(GUARD_SECONDS)[:8] == b"%08d" % sent
                sent += 1
            closing = threading.Thread(target=pub.close)
            closing.start()
            got = slow.expect_closed().removeprefix(PUB_HEADER)
            closing.join()
    whole, rest = divmod(len(got), len(message(b"12345678" + body)))
    assert rest == 0, "a message was cut"
    assert 0 < whole < sent


def test_a_subscriber_that_catches_up_receives_again() -> None:
    with (
        Socket(PUB, queue_bytes=100_000) as pub,
        Peer(port_of(pub.bind("tcp://127.0.0.1:0")), receive_bytes=4096) as slow,
    ):
        slow.send(SUB_HEADER)
        pub.wait_for_peers(1, GUARD_SECONDS)
        while not pub.missed:
            pub.send(b"x" * 10_000)
        drained = threading.Thread(target=slow.read_until, args=(message(b"the end"),), daemon=True)
        drained.start()
        while drained.is_alive():
            pub.send(b"the end")
            drained.join(0.01)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_subscriber_that_does_not_receive_makes_its_publisher_wait(scheme: str, tmp_path: Path) -> None:
    """The queue is bounded; messages that were not dropped arrive in order."""
    with Socket(PUB, queue_bytes=200_000) as pub, Socket(SUB, queue_bytes=200_000) as sub:
        sub.subscribe(b"")
        sub.connect(pub.bind(place(scheme, tmp_path)))
        pub.wait_for_peers(1, GUARD_SECONDS)
        sent = 0
        while not pub.missed:
            pub.send(b"%08d" % sent + b"x" * 20_000)
            sent += 1
        numbers: list[int] = []

        def all_arrived() -> bool:
            with suppress(TimeoutError):
                while True:
                    numbers.append(int(sub.recv(0)[:8]))
            return len(numbers) == sent - pub.missed

        wait_for(all_arrived, "what was not missed")
        assert numbers == sorted(set(numbers))
        pub.send(b"again")
        assert sub.recv(GUARD_SECONDS) == b"again"


def test_reading_stops_while_the_queue_is_full_and_goes_on_then() -> None:
    count, body = 4000, b"x" * 5000
    with Socket(SUB, queue_bytes=50_000) as sub, Peer(port_of(sub.bind("tcp://127.0.0.1:0"))) as peer:
        sub.subscribe(b"")
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        peer.send(PUB_HEADER)
        carried = threading.Event()

        def publish() -> None:
            for number in range(count):
                peer.send(message(b"%08d" % number + body))
            carried.set()

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        assert sub.recv(GUARD_SECONDS)[:8] == b"00000000"
        assert not carried.wait(0.2), "20 MB went into a queue of 50 KB"
        assert [int(message[:8]) for message in take(sub, count - 1)] == list(range(1, count))
        publisher.join(GUARD_SECONDS)


def test_empty_messages_fill_a_queue_too() -> None:
    with Socket(SUB, queue_bytes=64_000) as sub, Peer(port_of(sub.bind("tcp://127.0.0.1:0"))) as peer:
        sub.subscribe(b"")
        peer.send(PUB_HEADER)
        carried = threading.Event()

        def publish() -> None:
            with suppress(OSError):
                peer.send(bytes(8 * 4_000_000))
                carried.set()

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        assert sub.recv(GUARD_SECONDS) == b""
        assert not carried.wait(0.2), "four million messages went into a queue of a thousand"
        sub.close()
        with pytest.raises(OSError, match="closed"):
            sub.recv()
        publisher.join(GUARD_SECONDS)
        assert not carried.is_set()


def test_many_senders_lose_nothing(tmp_path: Path) -> None:
    threads, each = 8, 2000
    with pair(place("tcp", tmp_path), b"") as (pub, sub):

        def publish(name: int) -> None:
            for number in range(each):
                pub.send(b"%d %d" % (name, number))

        publishers = [threading.Thread(target=publish, args=(name,)) for name in range(threads)]
        for publisher in publishers:
            publisher.start()
        got = [tuple(map(int, message.split())) for message in take(sub, threads * each)]
        for publisher in publishers:
            publisher.join()
        for name in range(threads):
            assert [number for who, number in got if who == name] == list(range(each))


def test_many_receivers_share_the_messages(tmp_path: Path) -> None:
    total = 5000
    with pair(place("tcp", tmp_path), b"") as (pub, sub):
        got: list[bytes] = []
        receivers = [threading.Thread(target=lambda: got.extend(sub)) for _ in range(4)]
        for receiver in receivers:
            receiver.start()
        for number in range(total):
            pub.send(b"%d" % number)
        wait_for(lambda: len(got) == total, "all messages")
        sub.close()
        for receiver in receivers:
            receiver.join(GUARD_SECONDS)
        assert sorted(map(int, got)) == list(range(total))
