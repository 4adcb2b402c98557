"""The demo: what it says is fit for its dialects, and heard in all of them."""

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
from polycast.demo.actors import PRICE, Scene, cast, play
from polycast.demo.scenes import Chat, Orders, Sensors, Ticker, Visits
from polycast.dialects.client_session import PendingAcks
from polycast.model import Format

LISTENERS = (*ALL, "nanomsg.pub", "nanomsg.sub")
SCENES: dict[str, tuple[type[Any], str]] = {
    "fanout": (Chat, "chat."),
    "nanomsg": (Sensors, "sensors."),
    "hermod": (Orders, "orders."),
    "simplest": (Ticker, "ticker."),
    "ubre": (Visits, "web."),
}


@pytest.mark.parametrize("dialect", SCENES)
def test_a_scene_is_fit_for_its_dialect(dialect: str) -> None:
    make, below = SCENES[dialect]
    scene: Scene = make(Random(1))
    messages = [message for number in range(200) for message in scene.turn(number)]
    assert len({message.payload for message in messages}) > 100
    assert all(message.topic.startswith(below) for message in messages)
    for message in messages:
        assert message.format is not Format.JSON or isinstance(json.loads(message.payload), dict)
    assert b"".join(to_client_session(dialect, publishing=True).blocks(messages, PendingAcks()))


def test_the_same_chance_says_the_same() -> None:
    def said(seed: int) -> list[Any]:
        scene = Orders(Random(seed))
        return [list(scene.turn(number)) for number in range(50)]

    assert said(1) == said(1) != said(2)


def test_bursts_stand_out() -> None:
    scene = Orders(Random(1))
    sizes = [len(list(scene.turn(number))) for number in range(150)]
    assert min(sizes[143:]) >= 10 > max(sizes[:143])


def test_every_dialect_speaks_and_listens() -> None:
    actors = cast(Random(1))
    for publishing in (True, False):
        assert {actor.dialect for actor in actors if actor.publishing is publishing} == set(DIALECTS)


def test_it_is_heard_in_all_dialects() -> None:
    async def scene(broker: Broker) -> None:
        places = {name: f"tcp://127.0.0.1:{port}" for name, port in broker.ports.items()}
        begun = asyncio.Event()
        playing = asyncio.create_task(play(places, begun.set, Random(1)))
        async with asyncio.timeout(GUARD_SECONDS):
            await begun.wait()
            client = await connect_async("ubre", places["http"])
            counts: dict[str, list[int]] = {}
            while set(counts) != set(DIALECTS) or not all(map(all, counts.values())):
                counts = await count(client)
            answer = await client.request(PRICE, to_body("ACME"))
            assert answer.success and answer.value["price"] > 0
            assert not (await client.request(PRICE, to_body("nothing"))).success
            await client.close()
        playing.cancel()
        await asyncio.wait([playing])

    async def count(client: Any) -> dict[str, list[int]]:
        """By dialect: messages that came in it, and that went out in it."""
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
        begun = asyncio.Event()
        places = {"simplest": f"tcp://127.0.0.1:{broker.ports['simplest']}"}
        playing = asyncio.create_task(play(places, begun.set, Random(1)))
        async with asyncio.timeout(GUARD_SECONDS):
            await begun.wait()
        playing.cancel()
        await asyncio.wait([playing])

    with Broker(listen=("simplest",)) as broker:
        asyncio.run(scene(broker))
