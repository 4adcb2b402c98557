"""Where bytes are read into: every byte comes once, and long frames are not looked at again and again."""

from __future__ import annotations

from polycast.model import Block
from polycast.server.io.receive_buffer import LARGE_BYTES, SHARED_BYTES, ReceiveBuffer

PIECE = b"x" * 1024
LIMIT_BYTES = 4 * 1024 * 1024


def give(inbox: ReceiveBuffer, data: bytes) -> Block | None:
    room = inbox.room()
    room[: len(data)] = data
    return inbox.take(len(data))


def test_a_long_line_is_looked_at_when_it_ends() -> None:
    inbox = ReceiveBuffer(memoryview(bytearray(SHARED_BYTES)))
    line, looks = b"", 0
    for _ in range(1000):
        line += PIECE
        block = give(inbox, PIECE)
        if block is not None:
            looks += 1
            assert block == line
            inbox.keep(block, 0, LIMIT_BYTES, b"\n")
    assert looks == LARGE_BYTES // len(PIECE) + 1
    assert inbox.rest() == line
    assert give(inbox, b"end\nnext") == line + b"end\nnext"
    inbox.keep(line + b"end\nnext", len(line) + 4, 0)
    assert give(inbox, b"!") == b"next!"


def test_a_long_line_is_looked_at_when_it_can_be_no_line() -> None:
    inbox = ReceiveBuffer(memoryview(bytearray(SHARED_BYTES)))
    limit = LARGE_BYTES + 5000
    begun = give(inbox, b"x" * (LARGE_BYTES + 1))
    assert begun is not None
    inbox.keep(begun, 0, limit, b"\n")
    blocks = [give(inbox, b"y" * min(1000, len(inbox.room()))) for _ in range(5)]
    [block] = [block for block in blocks if block is not None]
    assert len(block) == limit


def test_what_takes_long_is_read_in_smaller_pieces() -> None:
    inbox = ReceiveBuffer(memoryview(bytearray(SHARED_BYTES)))
    sizes = []
    for taken in (0.1, 0.1, 0.1, 0.1, 0.02, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001):
        inbox.adapt(taken)
        sizes.append(len(inbox.room()) // 1024)
    assert sizes == [64, 16, 8, 8, 8, 16, 32, 64, 128, 256, 256]
