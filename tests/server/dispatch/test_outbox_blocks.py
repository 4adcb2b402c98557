"""Blocks of one encoding: a few subscribers get them as they are, many get them joined."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from polycast.broker import Delivery
from polycast.model import Burst, Encoded, Encoder, Format, Slices
from polycast.routing import Router, Topics
from polycast.server.dispatch.outbox import SCATTERED_MEMBERS, Outbox

BLOCKS = [b"head", b"payload", b"head", b"more"]


class BlockEncoder(Encoder):
    name = "blocks"

    def encode(self, burst: Burst, slices: Slices) -> Encoded:
        return Encoded(list(BLOCKS), len(b"".join(BLOCKS)))


class Receiver:
    """In place of a connection, and of its queue."""

    def __init__(self) -> None:
        self.queue = self
        self.listener = SimpleNamespace(counters=SimpleNamespace(lossy=0))
        self.blocks: list[bytes] = []

    def push(self, blocks: list[bytes], size: int, messages: int) -> None:
        self.blocks = blocks

    spilled = False


@pytest.mark.parametrize("members", [1, SCATTERED_MEMBERS, SCATTERED_MEMBERS + 1])
def test_blocks(members: int) -> None:
    receivers = [Receiver() for _ in range(members)]
    subscribers = [SimpleNamespace(owner=receiver) for receiver in receivers]
    audience: Any = SimpleNamespace(live=[(BlockEncoder(), subscribers)], committed=[])
    burst = Burst.of("some", [(b"a", b"payload", Format.BYTES)])
    Outbox(Router(Topics(1))).deliver([Delivery(audience, burst, [(0, 1)], None)])
    expected = [b"".join(BLOCKS)] if members > SCATTERED_MEMBERS else BLOCKS
    assert [receiver.blocks for receiver in receivers] == [expected] * members
