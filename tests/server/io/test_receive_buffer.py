"""Receive buffers: every byte is delivered once, and long frames are not scanned repeatedly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from polycast.model import Block
from polycast.server.io.receive_buffer import (
    ANONYMOUS_READ_BYTES,
    LARGE_BYTES,
    LARGE_READERS,
    READ_BYTES,
    SHARED_BYTES,
    UNAUTHORIZED_READ_BYTES,
    ReceiveBuffer,
    SharedMemory,
)

PIECE = b"x" * 1024
MIB = 1024 * 1024
LIMIT_BYTES = 4 * MIB
PLENTY = (1000 * MIB,)
"""Limits that allow the largest reads."""


def receive(buffer: ReceiveBuffer, data: bytes) -> Block | None:
    room = buffer.room()
    room[: len(data)] = data
    return buffer.take(len(data))


def test_a_long_line_is_scanned_when_its_terminator_is_received() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    line, scans = b"", 0
    for _ in range(1000):
        line += PIECE
        block = receive(buffer, PIECE)
        if block is not None:
            scans += 1
            assert block == line
            buffer.keep(block, 0, LIMIT_BYTES, b"\n")
    assert scans == LARGE_BYTES // len(PIECE) + 1
    assert buffer.rest() == line
    assert receive(buffer, b"end\nnext") == line + b"end\nnext"
    buffer.keep(line + b"end\nnext", len(line) + 4, 0)
    assert receive(buffer, b"!") == b"next!"


def test_a_long_line_is_scanned_when_it_exceeds_the_limit() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    limit = LARGE_BYTES + 5000
    received = receive(buffer, b"x" * (LARGE_BYTES + 1))
    assert received is not None
    buffer.keep(received, 0, limit, b"\n")
    blocks = [receive(buffer, b"y" * min(1000, len(buffer.room()))) for _ in range(5)]
    [block] = [block for block in blocks if block is not None]
    assert len(block) == limit


def read_times(buffer: ReceiveBuffer, times: Sequence[float], full: bool, behind: bool = False) -> list[int]:
    """The sizes of the next reads, in KiB."""
    sizes = []
    for taken in times:
        received = receive(buffer, bytes(len(buffer.room()) if full else 10))
        assert received is not None
        buffer.keep(received, len(received), 0)
        buffer.adapt(taken, behind)
        sizes.append(len(buffer.room()) // 1024)
    return sizes


def test_slow_reads_become_smaller() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    assert read_times(buffer, [0.1, 0.1, 0.1, 0.03, 0.02, 0.03], full=True) == [64, 16, 16, 16, 32, 32]
    assert read_times(buffer, [0.001] * 4, full=False) == [64, 128, 256, 256]


def test_reads_become_larger_while_there_is_more_to_read_and_they_are_brisk() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    assert read_times(buffer, [0.001] * 3, full=False) == [256, 256, 256]
    assert read_times(buffer, [0.003, 0.001, 0.001, 0.003, 0.001], full=True) == [256, 512, 1024, 1024, 2048]
    assert read_times(buffer, [0.001, 0.005, 0.003, 0.005, 0.005, 0.005], full=True) == [
        2048, 1024, 1024, 512, 256, 256,
    ]  # fmt: skip
    assert read_times(buffer, [0.1], full=True) == [64]


def test_no_large_reads_while_a_connection_is_behind() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    assert read_times(buffer, [0.001], full=True, behind=True) == [256]
    read_times(buffer, [0.001] * 3, full=True)
    assert read_times(buffer, [0.001] * 4, full=True, behind=True) == [1024, 512, 256, 256]


def test_a_read_behind_an_incomplete_frame_is_full_when_the_memory_is() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    read_times(buffer, [0.001] * 3, full=True)
    received = receive(buffer, bytes(SHARED_BYTES))
    assert received is not None
    buffer.keep(received, SHARED_BYTES - 1000, 2000)
    assert len(buffer.room()) == SHARED_BYTES - 1000
    received = receive(buffer, bytes(SHARED_BYTES - 1000))
    assert received is not None and len(received) == SHARED_BYTES


def test_few_connections_have_large_reads() -> None:
    memory = SharedMemory(*PLENTY)
    buffers = [ReceiveBuffer(memory) for _ in range(LARGE_READERS + 2)]
    for buffer in buffers:
        read_times(buffer, [0.001] * 3, full=True)
    sizes = [len(buffer.room()) for buffer in buffers]
    assert sizes == [READ_BYTES] * 2 + [SHARED_BYTES] * LARGE_READERS
    read_times(buffers[2], [0.001], full=True)
    read_times(buffers[0], [0.001], full=True)
    assert len(buffers[2].room()) == SHARED_BYTES
    assert len(buffers[3].room()) == READ_BYTES
    for buffer in buffers:
        buffer.drop()
    assert not memory._large


def test_an_incomplete_frame_claims_no_more_memory_than_was_received() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    received = receive(buffer, bytes(READ_BYTES))
    assert received is not None
    buffer.keep(received, 1000, 16 * MIB)
    rest = READ_BYTES - 1000
    assert (buffer.held, buffer.wanted, buffer.is_full) == (rest, 2 * rest, True)
    assert len(buffer.room()) == rest
    assert buffer.held == 2 * rest


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ((32 * MIB, 64 * MIB), SHARED_BYTES),
        ((1000 * MIB, 64 * MIB), SHARED_BYTES),
        ((32 * MIB, 8 * MIB), MIB // 2),
        ((32 * MIB, 65_536), READ_BYTES),
    ],
)
def test_a_read_is_small_beside_what_may_wait(limits: tuple[int, ...], size: int) -> None:
    buffer = ReceiveBuffer(SharedMemory(*limits))
    read_times(buffer, [0.001] * 6, full=True)
    assert len(buffer.room()) == size


def test_a_limit_on_the_size_of_reads() -> None:
    buffer = ReceiveBuffer(SharedMemory(*PLENTY))
    assert len(buffer.room()) == READ_BYTES
    buffer.limit_reads(ANONYMOUS_READ_BYTES, UNAUTHORIZED_READ_BYTES)
    assert len(buffer.room()) == UNAUTHORIZED_READ_BYTES
    for _ in range(10):
        buffer.adapt(0.0, False)
    assert len(buffer.room()) == ANONYMOUS_READ_BYTES
    for _ in range(10):
        buffer.adapt(1.0, False)
    assert len(buffer.room()) == ANONYMOUS_READ_BYTES // 8
    buffer.allow_reads()
    assert read_times(buffer, [0.001], full=True) == [512]
