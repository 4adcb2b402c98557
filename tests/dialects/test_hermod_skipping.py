"""The payload of a forbidden message is skipped: it ends where the payload of an allowed message would end."""

from __future__ import annotations

import random

import pytest

from kit.hermod import checksum, message
from polycast.dialects.guard import Guard
from polycast.dialects.hermod.headers import WHOLE_BYTES
from polycast.dialects.hermod.session import HermodSession
from polycast.dialects.session import SessionContext
from polycast.model import Ack, Refused, Reply

SIZES = (0, 1, 2, WHOLE_BYTES, WHOLE_BYTES + 1, 3 * WHOLE_BYTES)
BEGINNINGS = (b"", b"\n", b"\r\n", b"\r", b"\r\r", b"\n\n")


class Nobody(Guard):
    restricted = True

    def may_publish(self, topic: bytes) -> bool:
        return topic != b"secret"


def replies(stream: bytes, cuts: list[int]) -> tuple[bytes, int]:
    """The replies to a stream that comes in these pieces, and the number of refusals."""
    session = HermodSession(SessionContext())
    session.guard = Nobody()
    text, refused, rest = b"", 0, b""
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        block = rest + stream[start:stop]
        received = session.receive(block, 0.0)
        rest = block[received.consumed :]
        assert len(rest) <= WHOLE_BYTES + 300, "a large payload was buffered"
        for event in received.events:
            text += event.data if isinstance(event, Ack | Reply) else b""
            refused += isinstance(event, Refused)
    return text, refused


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize(
    ("gap", "checked"), [(b"", "right"), (b"", "wrong"), (b"", "none"), (b"\n", "right"), (b"\r\n", "right")]
)
def test_the_next_message_is_found(size: int, beginning: bytes, gap: bytes, checked: str) -> None:
    """Only a checksum proves a gap."""
    payload = (beginning + b"x" * size)[: max(size, len(beginning))]
    check = {"right": checksum(payload), "wrong": "0" * 40, "none": ""}[checked]
    stream = message("secret", payload, check, gap) + message("open", b"next")
    dice = random.Random(size)
    expected = b'{"status": "ERROR", "code": 403, "message": "Forbidden"}\n{"status": "OK"}\n'
    header = len(stream) - len(message("open", b"next")) - len(payload) - len(gap)
    near = [header, header + 1, header + 2, header + 3, header + len(payload), header + len(payload) + 1]
    for cuts in ([], [header], near, sorted(dice.sample(range(1, len(stream)), 20))):
        text, refused = replies(stream, [cut for cut in sorted(set(cuts)) if cut < len(stream)])
        assert text == expected
        assert refused == 1


def test_byte_by_byte() -> None:
    payload = b"\n" + b"x" * (WHOLE_BYTES + 5)
    for gap in (b"", b"\n"):
        stream = message("secret", payload, gap=gap) + message("open", b"next")
        text, _ = replies(stream, list(range(1, len(stream))))
        assert text.endswith(b'"Forbidden"}\n{"status": "OK"}\n')
