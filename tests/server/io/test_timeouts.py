"""Time limits of connections without progress."""

from __future__ import annotations

from contextlib import ExitStack

from kit.broker import ALL, Broker
from kit.flow import MIB, Reading, Sending
from kit.frames import pub
from kit.room import GREETING, Room
from kit.wire import wait_for

IDLE_SECONDS = 2


def test_a_connection_that_receives_nothing_is_closed() -> None:
    with Broker("--set=limits.stall_seconds=0.2") as broker, Room(broker) as room:
        stalled = room.simplest(b"sub flow\n", receive_bytes=4096)
        witness = room.simplest(b"sub flow\n")
        stream = pub("flow", b"x" * MIB) * 12
        sending = Sending(room.connect("simplest"), stream)
        assert Reading(witness, len(stream)).finish() == stream
        sending.finish()
        line = broker.wait_for_log("took nothing for 0.2 s")
        assert f"127.0.0.1:{stalled.socket.getsockname()[1]}:" in line
        assert "limits.stall_seconds" in line
        assert stream.startswith(stalled.expect_closed())
        room.simplest(pub("flow", b"after"))
        witness.expect(pub("flow", b"after"))


def test_a_connection_with_an_empty_queue_does_not_stall() -> None:
    """Another connection stalls and is closed; this one has an empty queue and stays."""
    with Broker("--set=limits.stall_seconds=0.2") as broker, Room(broker) as room:
        calm = room.simplest(b"sub calm\n")
        room.simplest(b"sub flow\n", receive_bytes=4096)
        sending = Sending(room.connect("simplest"), pub("flow", b"x" * MIB) * 12)
        broker.wait_for_log("took nothing")
        sending.finish()
        room.simplest(pub("calm", b"1"))
        calm.expect(pub("calm", b"1"))


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    """Requests and received messages both count as activity."""
    with Broker(f"--set=limits.idle_seconds={IDLE_SECONDS}") as broker, ExitStack() as peers:
        idle, listener, busy = (peers.enter_context(broker.connect(name)) for name in ("simplest", *ALL[:2]))
        busy.expect(GREETING)
        listener.send(b"sub x\n")
        publisher = peers.enter_context(broker.connect("simplest"))

        def idle_is_closed() -> bool:
            publisher.send(pub("x", b"1"))
            busy.send(b"time\n")
            assert busy.read_until(b"\n").strip().isdigit()
            return "idle for 2 s (limits.idle_seconds)" in broker.log()

        wait_for(idle_is_closed, "the idle connection to be closed")
        assert idle.expect_closed() == b""
        listener.read_until(pub("x", b"1"))
        busy.send(b"time\n")
        assert busy.read_until(b"\n").strip().isdigit()
        [line] = broker.wait_for_log("idle for").splitlines()
        assert f"127.0.0.1:{idle.socket.getsockname()[1]}:" in line
