"""What many replays of a real broker have in memory together, and that each of them is served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kit import hermod
from kit.broker import Broker
from kit.flow import MIB, Reading, resident_bytes
from kit.replay import handshake, read_messages, wait_for_total
from kit.wire import Peer
from log.log_builder import LogBuilder, stop
from polycast.log.upkeep.sealing import seal
from polycast.server.replay.rows_budget import LIMIT_BYTES

pytestmark = pytest.mark.slow

MESSAGES = 5000
PAYLOAD = bytes(range(256)) * 40
"""Far more bytes together than a socket can buffer, in row groups of 16 MiB."""
QUEUE_BYTES = 64 * MIB
OTHER_BYTES = 256 * MIB
"""The threads that read, what the allocators keep, and the connections."""


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data = tmp_path_factory.mktemp("data")
    (data / "log").mkdir()
    builder = LogBuilder(data / "log")
    seal(builder.segment(*[100] * (MESSAGES // 100), topics=["past"], payload=PAYLOAD))
    stop(builder)
    flags = f"--set=limits.total_queue_bytes={QUEUE_BYTES}", "--set=limits.stall_seconds=0"
    with Broker(*flags, data=data, fresh=True) as broker:
        yield broker


def begin(broker: Broker, stack: ExitStack, receive_bytes: int = 0) -> Peer:
    peer = stack.enter_context(broker.connect("hermod.sub", receive_bytes))
    peer.send(handshake("past", since="earliest"))
    return peer


def test_a_hundred_stalled_replays_share_what_they_read(sealed: Broker) -> None:
    """A row group for each of them would be 1.7 GB."""
    before = resident_bytes(sealed.process.pid)
    with ExitStack() as stack:
        peers = [begin(sealed, stack, receive_bytes=4096) for _ in range(100)]
        for peer in peers:
            peer.expect(hermod.OK)
            [first] = read_messages(peer, 1)
            assert first.payload == PAYLOAD
        wait_for_total(sealed, "replays_open", 100)
        most = resident_bytes(sealed.process.pid, "VmHWM")
        assert most - before < QUEUE_BYTES + LIMIT_BYTES + OTHER_BYTES
    wait_for_total(sealed, "replays_open", 0)


def test_more_brisk_replays_than_the_memory_has_room_for(sealed: Broker) -> None:
    wanted = hermod.OK + b"".join(hermod.delivery("past", PAYLOAD, number) for number in range(MESSAGES))
    with ExitStack() as stack:
        readings = [Reading(begin(sealed, stack), len(wanted)) for _ in range(12)]
        for reading in readings:
            assert reading.finish() == wanted
