"""Strangers say anything to a real broker; a witness on connections of its own notices nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.corpus import EXAMPLES, inputs
from kit.broker import Broker
from kit.flow import MIB, resident_bytes
from kit.frames import pub
from kit.room import Room
from polycast.dialects.registry import ROLES

LISTEN = tuple(ROLES)
GROWTH_BYTES = 64 * MIB

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def crowded() -> Iterator[Broker]:
    with Broker("--set=access.hosts=*", listen=LISTEN, fresh=True) as broker:
        yield broker


@pytest.mark.parametrize("role", LISTEN)
def test_fuzz_broker(role: str, crowded: Broker) -> None:
    with Room(crowded) as room:
        witness, publisher = room.simplest(b"sub polycast/witness\n"), room.simplest()
        before = resident_bytes(crowded.process.pid)

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(text=inputs(role), number=st.integers(0, 10**9))
        def run(text: list[bytes], number: int) -> None:
            with crowded.connect(role) as stranger, suppress(ConnectionError):
                for piece in text:
                    stranger.send(piece)
                stranger.shut()
                stranger.expect_closed()
            word = pub("polycast/witness", b"%d" % number)
            room.send_commands(publisher, word)
            witness.expect(word)

        run()
        assert crowded.process.poll() is None
        assert resident_bytes(crowded.process.pid) - before < GROWTH_BYTES
