"""Redialling: configured targets forever, announced targets for a while."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from polycast.address import Address
from polycast.server.io import outbound
from polycast.server.io.connection import Connection
from polycast.server.io.outbound import ANNOUNCED_ATTEMPTS, DialTarget, OutboundConnections

ADDRESS = Address("tcp", "127.0.0.1", 9)


class Refusing:
    """Refuses every connection."""

    def __init__(self, enough: int) -> None:
        self.dialled = 0
        self.reached = asyncio.Event()
        self._enough = enough

    async def __call__(self, target: DialTarget) -> Connection:
        self.dialled += 1
        if self.dialled >= self._enough:
            self.reached.set()
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "FIRST_WAIT_SECONDS", 0.0001)
    monkeypatch.setattr(outbound, "LONGEST_WAIT_SECONDS", 0.001)


def test_an_announced_target_is_abandoned_until_it_is_announced_again(caplog: pytest.LogCaptureFixture) -> None:
    target = DialTarget("simplest.peer", ADDRESS, announced=True)

    async def dial() -> int:
        refusing = Refusing(ANNOUNCED_ATTEMPTS)
        outbound_connections = OutboundConnections(refusing)
        for times in (1, 2):
            outbound_connections.add(target)
            assert target in outbound_connections
            while target in outbound_connections:
                await asyncio.sleep(0)
            assert refusing.dialled == times * ANNOUNCED_ATTEMPTS
        assert outbound_connections.announced == 0
        await outbound_connections.stop()
        return refusing.dialled

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(dial()) == 2 * ANNOUNCED_ATTEMPTS
    assert caplog.text.count(f"abandoned after {ANNOUNCED_ATTEMPTS} attempts, until it is announced again") == 2


class Closed:
    """A connection that is closed at once."""

    closing = True


def test_an_announced_address_of_this_broker_itself_is_not_dialled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbound, "OWN_AT_MOST", 3)
    targets = [DialTarget("simplest.peer", Address("tcp", f"127.0.0.{i}", 9), announced=True) for i in range(4)]
    dialled: list[DialTarget] = []

    async def dial() -> None:
        async def to_itself(target: DialTarget) -> Connection:
            dialled.append(target)
            connection = cast(Connection, Closed())
            outbound_connections.abandon(connection, None)
            return connection

        outbound_connections = OutboundConnections(to_itself)
        for target in targets:
            outbound_connections.add(target)
            assert outbound_connections.announced_at(target.address.host) == 1
            while outbound_connections.announced:
                await asyncio.sleep(0)
            assert target in outbound_connections
            outbound_connections.add(target)
        assert outbound_connections.announced == outbound_connections.announced_at("127.0.0.1") == 0
        assert dialled == targets
        assert [target in outbound_connections for target in targets] == [False, True, True, True]
        await outbound_connections.stop()

    asyncio.run(dial())


def test_a_configured_target_is_dialled_forever() -> None:
    async def dial() -> bool:
        refusing = Refusing(2000)  # so many doublings exceed the range of a float
        outbound_connections = OutboundConnections(refusing)
        target = DialTarget("simplest.peer", ADDRESS)
        outbound_connections.add(target)
        await refusing.reached.wait()
        there = target in outbound_connections
        await outbound_connections.stop()
        return there

    assert asyncio.run(dial())
