"""Numbered messages, to overrun a subscriber that does not read."""

from __future__ import annotations

from collections.abc import Callable

from kit.flow import KIB
from kit.frames import pub
from kit.room import Room
from kit.wire import Peer

QUEUE_BYTES = 64 * KIB
PIECE_BYTES = 32 * KIB
TRIES = 2000
"""So many pieces no system keeps for a socket that is not read."""


def numbered(number: int) -> bytes:
    return pub("flow", b"%08d" % number * (PIECE_BYTES // 8))


def publish_until(happened: Callable[[], bool], room: Room, publisher: Peer, witness: Peer) -> int:
    """Publishes to a witness that gets everything. Returns how many it took."""
    for number in range(TRIES):
        room.send_commands(publisher, numbered(number))
        witness.expect(numbered(number))
        if happened():
            return number + 1
    raise AssertionError(f"{TRIES} messages were not enough")
