"""A broker stops while publishers are sending: acknowledged messages are durable."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from kit import hermod
from kit.broker import Broker
from kit.hermod import OK
from kit.replay import Delivered, numbered, publish, read_messages, subscribe, total
from kit.subscribers import LISTEN, send_request
from kit.ubre import UbrePeer, line
from kit.wire import GUARD_SECONDS, Peer, wait_for

Making = Callable[[str, int], bytes]


class Pipelining:
    """Publishes without pause, and collects the acks, until the connection is closed."""

    def __init__(self, peer: Peer, topic: str, make: Making) -> None:
        self.peer, self.topic, self._make = peer, topic, make
        self.replies = b""
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._send, self._read)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        try:
            for start in count(0, 20):
                self.peer.send(b"".join(self._make(self.topic, number) for number in range(start, start + 20)))
        except OSError:
            self.peer.socket.close()

    def _read(self) -> None:
        try:
            while more := self.peer.socket.recv(65536):
                self.replies += more
            self.peer.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(GUARD_SECONDS)
            assert not thread.is_alive()


def single(topic: str, number: int) -> bytes:
    return hermod.message(topic, b"%d" % number)


def with_handshakes(topic: str, number: int) -> bytes:
    """Each message is followed by a handshake, which gets the same OK."""
    return hermod.message(topic, b"%d" % number) + hermod.topics("nothing")


def in_batches(topic: str, number: int) -> bytes:
    return hermod.count(1, batch_id=f"{topic} {number}") + hermod.message(topic, b"%d" % number)


def by_request(topic: str, number: int) -> bytes:
    return line(request="polycast/publish", id=number, body={"topic": topic, "body": number})


KINDS: dict[str, tuple[Making, Callable[[int], int]]] = {
    "single": (single, lambda oks: oks),
    "handshakes": (with_handshakes, lambda oks: (oks + 1) // 2),
    "batches": (in_batches, lambda oks: oks),
}
"""How messages are framed, and how many messages a number of OKs acknowledges."""


@pytest.mark.parametrize("delivery", ["live", "committed"])
def test_acknowledged_messages_are_durable(tmp_path: Path, delivery: str) -> None:
    flags = (f"--set=log.delivery={delivery}", "--set=log.segment_bytes=200000")
    with Broker(*flags, data=tmp_path) as broker:
        publishers = [
            Pipelining(broker.connect("hermod.pub"), f"{kind}/{number}", make)
            for kind, (make, _) in KINDS.items()
            for number in range(2)
        ]
        wait_for(lambda: all(publisher.replies.count(OK[:10]) > 300 for publisher in publishers), "replies")
        assert broker.stop() == 0
        for publisher in publishers:
            publisher.finish()
    with Broker(data=tmp_path) as broker:
        assert "not clean" not in broker.log() and "ERROR" not in broker.log()
        for publisher in publishers:
            check(broker, publisher)


def check(broker: Broker, publisher: Pipelining) -> None:
    """OKs, and at most one error; the log has the acknowledged messages in order, and continues without a gap."""
    lines = publisher.replies.splitlines(keepends=True)
    errors = [each for each in lines if b'"ERROR"' in each]
    assert errors in ([], lines[-1:]), errors
    assert all(json.loads(each)["code"] == 503 for each in errors)
    promised = KINDS[publisher.topic.partition("/")[0]][1](len(lines) - len(errors))
    with broker.connect("hermod.pub") as peer, subscribe(broker, publisher.topic, since="earliest") as subscriber:
        publish(peer, [(publisher.topic, b"the end")])
        subscriber.read = subscriber.read_until(b"the end")
        durable = subscriber.read.count(b'"sequence"') - 1
        wanted = [Delivered(publisher.topic, number, b"%d" % number) for number in range(durable)]
        assert read_messages(subscriber, durable + 1) == [*wanted, Delivered(publisher.topic, durable, b"the end")]
        assert durable >= promised > 0


def test_acknowledged_requests_are_durable(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        peer = UbrePeer(broker.ports["ubre"])
        publisher = Pipelining(
            peer,
            "t",
            lambda topic, number: line(
                request="polycast/publish", id=number, body={"topic": topic, "body": number}
            ),
        )
        wait_for(lambda: publisher.replies.count(b"success") > 300, "replies")
        assert broker.stop() == 0
        publisher.finish()
    replies = [json.loads(each) for each in publisher.replies.splitlines() if each.endswith(b"}")]
    durable = [reply["body"]["offset"] for reply in replies if "success" in reply]
    assert durable == list(range(len(durable)))
    with Broker(data=tmp_path, listen=LISTEN) as broker:
        assert total(broker, "log_next_offset") >= len(durable) > 300
        [row] = send_request(
            broker, "polycast/history", {"pattern": "t", "limit": 1, "from": {"t": len(durable) - 1}}
        )
        assert row["body"] == replies[len(durable) - 1]["success"]


def test_subscribers_get_what_was_taken(tmp_path: Path) -> None:
    """Subscribers that are connected when a broker stops have received every message in the log."""
    with Broker(data=tmp_path) as broker, subscribe(broker, "single/0") as live:
        received = bytearray()

        def read() -> None:
            while more := live.socket.recv(1 << 20):
                received.extend(more)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        publisher = Pipelining(broker.connect("hermod.pub"), "single/0", single)
        wait_for(lambda: publisher.replies.count(OK) > 1000, "replies")
        assert broker.stop() == 0
        publisher.finish()
        reading.join(GUARD_SECONDS)
    with Broker(data=tmp_path) as broker:
        durable = total(broker, "log_next_offset")
    wanted = b"".join(hermod.delivery("single/0", b"%d" % number, number) for number in range(durable))
    assert bytes(received[: len(wanted)]) == wanted
    assert json.loads(received[len(wanted) :])["code"] == 503


def test_a_stop_without_anything(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(data=tmp_path) as broker:
            pass
        assert not list((tmp_path / "log").glob("*.arrows"))
    with Broker(data=tmp_path) as broker, broker.connect("hermod.pub") as peer:
        publish(peer, numbered("t", range(3)))
    with Broker(data=tmp_path) as broker, subscribe(broker, "t", since="earliest") as subscriber:
        assert [received.sequence for received in read_messages(subscriber, 3)] == [0, 1, 2]
        assert "not clean" not in broker.log()
