"""A peer can read why it was closed, even while it keeps sending."""

from __future__ import annotations

import pytest

from kit.flow import MIB, Sending
from kit.room import Room

FLOOD = b"x" * (8 * MIB)


@pytest.mark.parametrize("times", range(5))
def test_the_close_reason_reaches_a_peer_that_keeps_sending(room: Room, times: int) -> None:
    peer = room.connect("hermod.pub")
    sending = Sending(peer, b'{"topic": 7}' + FLOOD)
    assert b'"code": 400' in peer.read_until(b"\n")
    assert peer.expect_closed() == b""
    sending.finish()


def test_a_peer_that_does_not_close_is_aborted(room: Room) -> None:
    peer = room.connect("hermod.pub")
    peer.send(b"no header")
    assert b'"code": 400' in peer.expect_closed()
    peer.send(b"still here")
