"""A real broker on a full file system of two megabytes that later has room again."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.log_checks import check_log, read_with_pyarrow
from kit import hermod
from kit.broker import Broker
from kit.hermod import OK
from kit.http import get, read_response
from kit.program import polycast
from kit.replay import read_messages, subscribe, total, wait_for_total
from kit.wire import Peer, wait_for
from log.log_builder import findings

REASON = "No space left on device"
SIZE = 60_000


class SmallDisk:
    """`fill` uses up the free space, `free` releases it."""

    def __init__(self, path: Path) -> None:
        self.data = path / "data"
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return

    def free(self) -> None:
        self._ballast.unlink()

    def room(self) -> int:
        return shutil.disk_usage(self.data).free

    @property
    def log(self) -> Path:
        return self.data / "log"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True)
    if not made or made.returncode:
        pytest.skip("no small file system can be made: run the tests as root, where mount -t tmpfs is allowed")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", place], check=True)


class Publisher:
    """Publishes numbered messages, and records which were acknowledged."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.text = 0
        self.durable: list[bytes] = []

    def publish(self) -> str:
        """The error, or an empty string if the message is durable."""
        payload = (b"%d " % self.text).ljust(SIZE, b".")
        self.text += 1
        self.peer.send(hermod.message("t", payload))
        response = json.loads(self.peer.read_until(b"\n"))
        if response == {"status": "OK"}:
            self.durable.append(payload)
            return ""
        assert (response["status"], response["code"]) == ("ERROR", 500)
        return str(response["message"])


def publish_until_full(publisher: Publisher) -> str:
    while not (reason := publisher.publish()):
        assert len(publisher.durable) < 100
    return reason


def readiness(broker: Broker) -> tuple[int, bytes]:
    with broker.connect("http") as peer:
        peer.send(get("/readyz"))
        response = read_response(peer)
        return response.status, response.body


def test_old_segments_go_before_it_is_full(small: SmallDisk) -> None:
    """Three times as many bytes as there is room for; retention makes room, so none is refused."""
    floor = 1 << 20
    flags = (f"--set=log.keep_free={floor}", "--set=log.segment_bytes=65536", "--set=log.seal=false")
    with Broker(*flags, data=small.data) as broker, broker.connect("hermod.pub") as peer:
        assert f"{small.log}: the oldest segments are removed when less than 1.0 MiB are free" in broker.log()
        assert readiness(broker) == (200, b"ready\n")
        publisher = Publisher(peer)
        for _ in range(100):
            assert publisher.publish() == ""
            wait_for(
                lambda: small.room() >= floor // 2, "room"
            )  # the file system frees removed files a little later
        status, body = readiness(broker)
        assert (status, body[:15]) == (200, b"ready\nwarning: ")
        assert b"log.keep_free is 1.0 MiB: the oldest segments of the log are removed" in body
        removed = total(broker, "log_segments_removed_for_room_total")
        assert 30 < removed <= total(broker, "log_segments_removed_total")
        assert "make room, or limit the log" in broker.wait_for_log("log.keep_free is 1.0 MiB")
    rows, _ = read_with_pyarrow(small.log)
    assert rows and [row.payload for row in rows] == publisher.durable[-len(rows) :]
    assert rows[0].offset == 100 - len(rows)
    assert findings(small.log) == []


def check_log_of(small: SmallDisk, durable: list[bytes]) -> None:
    rows, gaps = read_with_pyarrow(small.log)
    assert [row.payload for row in rows] == durable
    check_log(rows, gaps)
    assert all(REASON in gap.reason or gap.reason == "unclean stop" for gap in gaps)
    assert findings(small.log) == []


def test_full_and_then_free(small: SmallDisk) -> None:
    with (
        Broker(data=small.data) as broker,
        broker.connect("hermod.pub") as peer,
        subscribe(broker, "t") as subscriber,
    ):
        publisher = Publisher(peer)
        publisher.publish()
        small.fill()
        reason = publish_until_full(publisher)
        assert REASON in reason
        for _ in range(5):
            assert REASON in publisher.publish()
        lost = publisher.text - len(publisher.durable)
        received = read_messages(subscriber, publisher.text)  # live subscribers have received every message
        assert [each.sequence for each in received] == list(range(publisher.text))
        assert total(broker, "log_messages_lost_total") == lost
        assert REASON in broker.wait_for_log("messages are not stored")
        assert readiness(broker) == (503, f"messages are not stored: {REASON}\n".encode())
        small.free()
        assert publisher.publish() == ""
        assert readiness(broker) == (200, b"ready\n")
        assert "ERROR" not in broker.wait_for_log("messages are stored again")
        assert read_messages(subscriber, 1)[0].sequence == publisher.text - 1
        assert total(broker, "log_messages_lost_total") == lost
    check_log_of(small, publisher.durable)


def test_a_batch_with_an_id_can_be_retried_when_there_is_room(small: SmallDisk) -> None:
    with Broker(data=small.data) as broker, broker.connect("hermod.pub") as peer:
        batch = hermod.count(2, batch_id="night") + hermod.message("t", b"x" * SIZE) + hermod.message("t", b"y")
        peer.send(hermod.message("t", b"first"))
        peer.expect(OK)
        small.fill()
        for _ in range(2):
            peer.send(batch)
            hermod.expect_error(peer, 500, count=0)
        small.free()
        for _ in range(2):
            peer.send(batch)
            peer.expect(hermod.ok(2))
    check_log_of(small, [b"first", b"x" * SIZE, b"y"])


def test_a_repeat_of_a_failed_batch_fails(small: SmallDisk) -> None:
    """The repeat is received before the first batch has failed."""
    with Broker(data=small.data) as broker, broker.connect("hermod.pub") as peer:
        peer.send(hermod.message("t", b"first"))
        peer.expect(OK)
        small.fill()
        batch = hermod.count(1, batch_id="night") + hermod.message("t", b"x" * 10_000)
        peer.send(batch * 3)
        for _ in range(3):
            hermod.expect_error(peer, 500, count=0)
        small.free()
        peer.send(batch * 3)
        peer.expect(hermod.ok(1) * 3)
    check_log_of(small, [b"first", b"x" * 10_000])


def test_the_reply_counts_the_durable_messages_of_a_batch(small: SmallDisk) -> None:
    with (
        Broker(data=small.data) as broker,
        broker.connect("hermod.pub") as peer,
        subscribe(broker, "t") as subscriber,
    ):
        peer.send(hermod.START + hermod.message("t", b"1") + hermod.message("t", b"2"))
        read_messages(subscriber, 2)
        wait_for_total(broker, "log_durable_offset", 2)
        small.fill()
        peer.send(hermod.message("t", b"3" * SIZE) + hermod.END)
        hermod.expect_error(peer, 500, count=2)
        small.free()
    check_log_of(small, [b"1", b"2"])


def test_a_stop_while_it_is_full(small: SmallDisk) -> None:
    """No durable message is lost; a start without room fails with an error."""
    with Broker(data=small.data) as broker, broker.connect("hermod.pub") as peer:
        publisher = Publisher(peer)
        publisher.publish()
        small.fill()
        publish_until_full(publisher)
        broker.stop()
        assert "the next start reads the end of the log" in broker.log()
    failed = polycast("serve", "--listen=simplest=tcp://127.0.0.1:0", "--data", str(small.data))
    assert failed.code == 1 and failed.out == b""
    assert f"polycast: cannot write a log in {small.log}: {REASON}\nhint: " in failed.err
    small.free()
    with Broker(data=small.data) as broker, broker.connect("hermod.pub") as peer:
        again = Publisher(peer)
        assert again.publish() == ""
    check_log_of(small, publisher.durable + again.durable)


def test_killed_while_it_is_full(small: SmallDisk) -> None:
    with Broker(data=small.data) as broker, broker.connect("hermod.pub") as peer:
        publisher = Publisher(peer)
        publisher.publish()
        small.fill()
        publish_until_full(publisher)
        broker.kill()
    small.free()
    with (
        Broker(data=small.data) as broker,
        broker.connect("hermod.pub") as peer,
        subscribe(broker, "t") as subscriber,
    ):
        again = Publisher(peer)
        assert again.publish() == ""
        assert read_messages(subscriber, 1)[0].sequence > publisher.text
    check_log_of(small, publisher.durable + again.durable)
