"""The memory that peers can make the broker use."""

from __future__ import annotations

import resource
from contextlib import ExitStack

import pytest

from kit.broker import Broker
from kit.flow import KIB, MIB, resident_bytes
from kit.room import Room

HEADERS = 200
SPARE_FILES = 1000


def room_for(connections: int) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = connections + SPARE_FILES
    if soft < need <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    return need <= hard


def test_a_header_alone_claims_no_memory() -> None:
    with Broker(fresh=True) as broker, Room(broker) as room:
        peers = [room.simplest() for _ in range(HEADERS)]
        before = resident_bytes(broker.process.pid)
        for peer in peers:
            peer.send(b"pub x 16777216 ")
        flush_all(room)
        assert resident_bytes(broker.process.pid) - before < 30 * MIB


def test_an_incomplete_payload_uses_about_the_memory_of_its_received_part() -> None:
    with Broker(fresh=True) as broker, Room(broker) as room:
        peers = [room.simplest() for _ in range(HEADERS)]
        before = resident_bytes(broker.process.pid)
        for peer in peers:
            peer.send(b"pub x 16777216 " + b"x" * 10 * KIB)
        flush_all(room)
        assert resident_bytes(broker.process.pid) - before < 30 * MIB


def flush_all(room: Room) -> None:
    """When this peer gets its reply, all sockets that were readable before have been read."""
    for _ in range(3):
        room.client()


def test_incomplete_lines_use_no_more_memory_than_their_limit() -> None:
    with Broker(fresh=True) as broker, Room(broker) as room:
        before = resident_bytes(broker.process.pid)
        peers = [room.simplest() for _ in range(HEADERS)]
        for peer in peers:
            peer.send(b"l" * 65_536)
        flush_all(room)
        assert resident_bytes(broker.process.pid) - before < HEADERS * 2 * 64 * KIB


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_000, 10_000])
def test_an_idle_connection_uses_little_memory(count: int) -> None:
    if not room_for(count):
        pytest.skip(f"{count:,} connections need more open files than this system allows: ulimit -Hn")
    with Broker(fresh=True) as broker, ExitStack() as peers, Room(broker) as room:
        before = resident_bytes(broker.process.pid)
        for _ in range(count):
            peers.enter_context(broker.connect("simplest")).send(b"sub idle\n")
        room.client()
        assert (resident_bytes(broker.process.pid) - before) / count < 20 * KIB


@pytest.mark.slow
def test_memory_of_large_payloads_is_released() -> None:
    with Broker(fresh=True) as broker, Room(broker) as room:
        before = resident_bytes(broker.process.pid)
        for _ in range(10):
            room.simplest(b"pub x 8388608 " + b"x" * 8 * MIB + b"\n")
        assert resident_bytes(broker.process.pid) - before < 40 * MIB


@pytest.mark.slow
def test_unused_topics_are_forgotten() -> None:
    with Broker("--set=limits.topics=1000", fresh=True) as broker, Room(broker) as room:
        publisher = room.simplest()
        room.send_commands(publisher, b"".join(b"pub first/%d 0 \n" % number for number in range(10_000)))
        before = resident_bytes(broker.process.pid)
        for turn in range(10):
            room.send_commands(
                publisher, b"".join(b"pub t/%d/%d 0 \n" % (turn, number) for number in range(10_000))
            )
        assert resident_bytes(broker.process.pid) - before < 8 * MIB
