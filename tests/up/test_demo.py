"""The demo publishes valid messages in every dialect, and every dialect delivers them."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from kit.broker import ALL, Broker
from kit.wire import GUARD_SECONDS
from polycast.client import connect_async, from_body, to_body
from polycast.client.connect import DIALECTS, to_client_session
from polycast.demo.demo_clients import PRICE_ROUTE, Generator, demo_clients, run
from polycast.demo.generators import Chat, Orders, Sensors, Ticker, Visits
from polycast.model import Format

LISTENERS = (*ALL, "nanomsg.pub", "nanomsg.sub")
GENERATORS: dict[str, tuple[type[Any], str]] = {
    "fanout": (Chat, "chat."),
    "nanomsg": (Sensors, "sensors."),
    "hermod": (Orders, "orders."),
    "simplest": (Ticker, "ticker."),
    "ubre": (Visits, "web."),
}


@pytest.mark.parametrize("dialect", GENERATORS)
def test_messages_are_valid_in_their_dialect(dialect: str) -> None:
    make, prefix = GENERATORS[dialect]
    generator: Generator = make(Random(1))
    messages = [message for number in range(200) for message in generator.tick(number)]
    assert len({message.payload for message in messages}) > 100
    assert all(message.topic.startswith(prefix) for message in messages)
    for message in messages:
        assert message.format is not Format.JSON or isinstance(json.loads(message.payload), dict)
    assert all(to_client_session(dialect, publishing=True).encoded(messages))


def test_the_same_seed_makes_the_same_messages() -> None:
    def generate(seed: int) -> list[Any]:
        generator = Orders(Random(seed))
        return [list(generator.tick(number)) for number in range(50)]

    assert generate(1) == generate(1) != generate(2)


def test_bursts_stand_out() -> None:
    generator = Orders(Random(1))
    sizes = [len(list(generator.tick(number))) for number in range(150)]
    assert min(sizes[143:]) >= 10 > max(sizes[:143])


def test_every_dialect_has_a_publisher_and_a_subscriber() -> None:
    clients = demo_clients(Random(1))
    for publishing in (True, False):
        assert {client.dialect for client in clients if client.publishing is publishing} == set(DIALECTS)


def test_all_dialects_deliver() -> None:
    async def scene(broker: Broker) -> None:
        addresses = {name: f"tcp://127.0.0.1:{port}" for name, port in broker.ports.items()}
        ready = asyncio.Event()
        task = asyncio.create_task(run(addresses, ready.set, Random(1)))
        async with asyncio.timeout(GUARD_SECONDS):
            await ready.wait()
            client = await connect_async("ubre", addresses["http"])
            counts: dict[str, list[int]] = {}
            while set(counts) != set(DIALECTS) or not all(map(all, counts.values())):
                counts = await count(client)
            response = await client.request(PRICE_ROUTE, to_body("ACME"))
            assert response.success and response.value["price"] > 0
            assert not (await client.request(PRICE_ROUTE, to_body("nothing"))).success
            await client.close()
        task.cancel()
        await asyncio.wait([task])

    async def count(client: Any) -> dict[str, list[int]]:
        """Messages in and out, by dialect."""
        listeners = from_body((await client.request("polycast/stats")).body)["listeners"]
        found: dict[str, list[int]] = {}
        for row in listeners:
            sums = found.setdefault(row["dialect"], [0, 0])
            sums[0] += row["messages_in"]
            sums[1] += row["messages_out"]
        return {dialect: sums for dialect, sums in found.items() if dialect in DIALECTS}

    with Broker(listen=LISTENERS) as broker:
        asyncio.run(scene(broker))


def test_dialects_without_a_listener_are_left_out() -> None:
    async def scene(broker: Broker) -> None:
        ready = asyncio.Event()
        addresses = {"simplest": f"tcp://127.0.0.1:{broker.ports['simplest']}"}
        task = asyncio.create_task(run(addresses, ready.set, Random(1)))
        async with asyncio.timeout(GUARD_SECONDS):
            await ready.wait()
        task.cancel()
        await asyncio.wait([task])

    with Broker(listen=("simplest",)) as broker:
        asyncio.run(scene(broker))
