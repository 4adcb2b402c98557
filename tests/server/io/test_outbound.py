"""How long the broker dials: what is configured for ever, what was announced for a while."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from polycast.address import Address
from polycast.server.io import outbound
from polycast.server.io.connection import Connection
from polycast.server.io.outbound import FOUND_ATTEMPTS, DialTarget, OutboundConnections

ADDRESS = Address("tcp", "127.0.0.1", 9)


class Refusing:
    """Nobody is there, however often one dials."""

    def __init__(self, enough: int) -> None:
        self.dialled = 0
        self.reached = asyncio.Event()
        self._enough = enough

    async def __call__(self, place: DialTarget) -> Connection:
        self.dialled += 1
        if self.dialled >= self._enough:
            self.reached.set()
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "FIRST_WAIT_SECONDS", 0.0001)
    monkeypatch.setattr(outbound, "LONGEST_WAIT_SECONDS", 0.001)


def test_what_was_announced_is_given_up_until_it_is_announced_again(caplog: pytest.LogCaptureFixture) -> None:
    place = DialTarget("simplest.peer", ADDRESS, found=True)

    async def dial() -> int:
        refusing = Refusing(FOUND_ATTEMPTS)
        kept = OutboundConnections(refusing)
        for times in (1, 2):
            kept.add(place)
            assert place in kept
            while place in kept:
                await asyncio.sleep(0)
            assert refusing.dialled == times * FOUND_ATTEMPTS
        assert kept.found == 0
        await kept.stop()
        return refusing.dialled

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(dial()) == 2 * FOUND_ATTEMPTS
    assert caplog.text.count(f"given up after {FOUND_ATTEMPTS} attempts, until it is announced again") == 2


class Closed:
    """A connection that is closed as soon as it is there."""

    closing = True


def test_an_announced_place_that_led_to_this_broker_is_no_link_and_not_dialled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbound, "OWN_AT_MOST", 3)
    places = [DialTarget("simplest.peer", Address("tcp", f"127.0.0.{i}", 9), found=True) for i in range(4)]
    dialled: list[DialTarget] = []

    async def dial() -> None:
        async def to_itself(place: DialTarget) -> Connection:
            dialled.append(place)
            connection = cast(Connection, Closed())
            kept.give_up(connection, None)
            return connection

        kept = OutboundConnections(to_itself)
        for place in places:
            kept.add(place)
            assert kept.found_at(place.address.host) == 1
            while kept.found:
                await asyncio.sleep(0)
            assert place in kept
            kept.add(place)
        assert kept.found == kept.found_at("127.0.0.1") == 0
        assert dialled == places
        assert [place in kept for place in places] == [False, True, True, True]
        await kept.stop()

    asyncio.run(dial())


def test_what_is_configured_is_dialled_for_ever() -> None:
    async def dial() -> bool:
        refusing = Refusing(2000)  # doubling so often would be past what a float can hold
        kept = OutboundConnections(refusing)
        place = DialTarget("simplest.peer", ADDRESS)
        kept.add(place)
        await refusing.reached.wait()
        there = place in kept
        await kept.stop()
        return there

    assert asyncio.run(dial())
