"""Two nodes with one name: exactly one goes on, in whatever order their claims arrive."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from polycast.cluster.name_claim import Claim, NameClaim
from polycast.cluster.stream import Stream
from polycast.errors import ClusterError, StartError


@pytest.mark.parametrize("ready", [(False, False), (True, False), (False, True), (True, True)])
def test_of_two_nodes_with_one_name_exactly_one_goes_on(ready: tuple[bool, bool]) -> None:
    stream: Any = None
    claims = [NameClaim(stream, "a") for _ in range(2)]
    for each, established in zip(claims, ready, strict=True):
        if established:
            each.establish()
    first, second = claims
    heard = [first.meet(second.own), second.meet(first.own)]
    assert sorted(heard) == [False, True]
    lost = [each for each in claims if raises(each)]
    assert len(lost) == 1
    if ready[0] != ready[1]:
        assert lost == [claims[ready.index(False)]]
    assert not first.meet(first.own)


def raises(claim: NameClaim) -> bool:
    try:
        claim.check()
    except ClusterError as error:
        return "another node with the name a runs" in str(error)
    return False


class Bus:
    """Carries the claims of two nodes. Each arrives at the other node at any later time, in order."""

    def __init__(self) -> None:
        self.nodes = [NameClaim(cast(Stream, self._stream(index)), "a") for index in range(2)]
        self.under_way: list[list[Any]] = [[], []]

    def _stream(self, index: int) -> SimpleNamespace:
        async def broadcast(subject: str, claim: Claim) -> None:
            self.under_way[index].append(claim)

        async def request(subject: str, body: bytes, timeout: float) -> Any:
            raise NoRespondersError

        async def subscribe(subject: str, handle: Any) -> None:
            pass

        connection = SimpleNamespace(request=request)
        return SimpleNamespace(name="S", broadcast=broadcast, subscribe=subscribe, connection=connection)

    async def arrive(self, sender: int) -> None:
        claim = self.under_way[sender].pop(0)
        message = SimpleNamespace(data=msgspec.json.encode(claim), reply="")
        await self.nodes[1 - sender]._on_claim(cast(Msg, message))


@pytest.mark.parametrize("seed", range(60))
def test_claims_arrive_at_any_time(seed: int) -> None:
    async def run() -> None:
        chance, bus = Random(seed), Bus()
        for node in bus.nodes:
            await node.start()
        for _ in range(12):
            index = chance.randrange(2)
            match chance.randrange(4):
                case 0 if bus.under_way[index]:
                    await bus.arrive(index)
                case 1:
                    await bus.nodes[index].send()
                case 2:
                    with contextlib.suppress(ClusterError):
                        bus.nodes[index].establish()
        for node in bus.nodes:
            await node.send()
        while any(bus.under_way):
            await bus.arrive(chance.choice([index for index in range(2) if bus.under_way[index]]))
        assert [raises(node) for node in bus.nodes].count(True) == 1

    asyncio.run(run())


@pytest.mark.parametrize(("established", "refused"), [(True, True), (False, False)])
def test_a_node_that_starts_asks_for_the_claim_of_a_running_one(established: bool, refused: bool) -> None:
    """Of two that start, the one with the lower id goes on."""

    async def run() -> None:
        bus = Bus()
        running, starting = bus.nodes
        running.own, starting.own = Claim("b", established), Claim("a")

        async def request(subject: str, body: bytes, timeout: float) -> Any:
            return SimpleNamespace(data=msgspec.json.encode(running.own))

        starting._stream.connection.request = request  # type: ignore[method-assign, assignment]
        if refused:
            with pytest.raises(StartError, match="a node with the name a runs already"):
                await starting.start()
        else:
            await starting.start()

    asyncio.run(run())
