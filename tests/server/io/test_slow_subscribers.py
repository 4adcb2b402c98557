"""Subscribers that read too slowly, and others that must not be affected."""

from __future__ import annotations

import re

import pytest

from kit.broker import Broker
from kit.flow import MIB, Reading, Sending, resident_bytes
from kit.frames import pub, read_pubs
from kit.room import Room
from kit.slow import PIECE_BYTES, QUEUE_BYTES, numbered, publish_until


def test_a_subscriber_that_never_reads_is_disconnected_and_the_reason_logged() -> None:
    with Broker(f"--set=limits.queue_bytes={QUEUE_BYTES}") as broker, Room(broker) as room:
        slow = room.simplest(b"sub flow\n", receive_bytes=4096)
        witness, publisher = room.simplest(b"sub flow\n"), room.simplest()
        published = publish_until(lambda: "too slow" in broker.log(), room, publisher, witness)
        port = slow.socket.getsockname()[1]
        [line] = [line for line in broker.log().splitlines() if "too slow" in line]
        match = re.search(
            rf"simplest #\d+ 127\.0\.0\.1:{port}: .* ([\d,]+) bytes are queued.*65,536 \(limits\.queue_bytes\)",
            line,
        )
        assert match, line
        assert 0 < int(match[1].replace(",", "")) <= QUEUE_BYTES
        room.send_commands(publisher, numbered(published))
        witness.expect(numbered(published))
        received, _ = read_pubs(slow.expect_closed())
        assert received == [("flow", b"%08d" % number * (PIECE_BYTES // 8)) for number in range(len(received))]


def test_a_fanout_client_that_never_reads_is_disconnected_too() -> None:
    with Broker(f"--set=limits.queue_bytes={QUEUE_BYTES}") as broker, Room(broker) as room:
        room.client(b"subscribe flow\n", receive_bytes=4096)
        witness, publisher = room.simplest(b"sub flow\n"), room.simplest()
        publish_until(lambda: "too slow" in broker.log(), room, publisher, witness)
        assert "fanout.client #" in broker.wait_for_log("too slow")


def drop_and_read_again(broker: Broker, room: Room) -> None:
    slow = room.simplest(b"sub flow\n", receive_bytes=4096)
    witness, publisher = room.simplest(b"sub flow\n"), room.simplest()
    first_dropped = publish_until(lambda: "dropping" in broker.log(), room, publisher, witness) - 1
    for number in range(first_dropped + 1, first_dropped + 10):
        room.send_commands(publisher, numbered(number))
        witness.expect(numbered(number))
    for number in range(first_dropped):
        slow.expect(numbered(number))
    room.send_commands(publisher, pub("flow", b"news"))
    slow.expect(pub("flow", b"news"))
    witness.expect(pub("flow", b"news"))
    assert broker.log().count("dropping new messages") == 1
    assert "dropped 10 messages" in broker.wait_for_log("dropped")
    assert "65,536 (limits.queue_bytes)" in broker.wait_for_log("dropping").replace("the limit is ", "")


def test_policy_drop_counts_the_dropped_messages() -> None:
    with Broker(f"--set=limits.queue_bytes={QUEUE_BYTES}", options="?policy=drop") as broker:
        with Room(broker) as room:
            drop_and_read_again(broker, room)
        broker.stop()
        assert "dropped 10" in broker.wait_for_log("INFO simplest:")


def test_the_policy_can_be_set_for_all_listeners() -> None:
    flags = (f"--set=limits.queue_bytes={QUEUE_BYTES}", "--set=limits.policy=drop")
    with Broker(*flags) as broker, Room(broker) as room:
        drop_and_read_again(broker, room)


def test_a_fanout_client_gets_whole_lines_after_a_drop() -> None:
    with Broker(f"--set=limits.queue_bytes={QUEUE_BYTES}", options="?policy=drop") as broker, Room(broker) as room:
        slow = room.client(b"subscribe flow\n", receive_bytes=4096)
        witness, publisher = room.simplest(b"sub flow\n"), room.simplest()
        first_dropped = publish_until(lambda: "dropping" in broker.log(), room, publisher, witness) - 1
        for number in range(first_dropped):
            slow.expect(b"flow!" + b"%08d" % number * (PIECE_BYTES // 8) + b"\n")
        room.send_commands(publisher, pub("flow", b"news"))
        slow.expect(b"flow!news\n")
        room.send_as_client(slow)


@pytest.mark.slow
def test_past_the_total_publishers_are_paused_and_nothing_is_lost() -> None:
    """One queue may hold all of the messages; all queues together may not."""
    limits = ("--set=limits.queue_bytes=1000000000", f"--set=limits.total_queue_bytes={MIB}")
    stream = b"".join(numbered(number) for number in range(32 * MIB // PIECE_BYTES))
    with Broker(*limits, fresh=True) as broker, Room(broker) as room:
        slow = [room.simplest(b"sub flow\n", receive_bytes=4096) for _ in range(3)]
        before = resident_bytes(broker.process.pid)
        sending = Sending(room.connect("simplest"), stream)
        sending.wait_until_held_up()
        assert not sending.done
        room.client()  # a peer that does not publish is not paused
        readings = [Reading(subscriber, len(stream)) for subscriber in slow]
        assert all(reading.finish() == stream for reading in readings)
        sending.finish()
        assert resident_bytes(broker.process.pid, "VmHWM") - before < 12 * MIB


def test_a_paused_publisher_is_read_again_when_the_slow_one_leaves() -> None:
    limits = ("--set=limits.queue_bytes=1000000000", f"--set=limits.total_queue_bytes={MIB}")
    stream = b"".join(numbered(number) for number in range(32 * MIB // PIECE_BYTES))
    with Broker(*limits) as broker, Room(broker) as room:
        slow = room.simplest(b"sub flow\n", receive_bytes=4096)
        sending = Sending(room.connect("simplest"), stream)
        sending.wait_until_held_up()
        assert not sending.done
        slow.close()
        sending.finish()


def test_a_message_larger_than_the_queue_reaches_a_fast_subscriber() -> None:
    with Broker(f"--set=limits.queue_bytes={QUEUE_BYTES}") as broker, Room(broker) as room:
        subscriber = room.simplest(b"sub big\n")
        frame = pub("big", b"x" * (4 * MIB))
        sending = Sending(room.connect("simplest"), frame)
        assert Reading(subscriber, len(frame)).finish() == frame
        sending.finish()
