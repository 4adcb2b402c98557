"""Nodes whose tables differ, and nodes with one name, on one server."""

from __future__ import annotations

import asyncio
import json
import threading
from types import TracebackType
from typing import Any

import nats
from nats.aio.msg import Msg

from cluster.place import Place, send
from kit.broker import Broker
from kit.subscribers import send_request
from kit.wire import GUARD_SECONDS, wait_for

GOSSIP_SECONDS = 0.2


class OtherNodes:
    """Nodes that send their status and respond with their chains, until the end of the block."""

    def __init__(self, place: Place, status: dict[str, Any], **chains: str) -> None:
        self._place = place
        self._bodies = [json.dumps(status | {"node": name, "chain": chain}) for name, chain in chains.items()]
        self._began, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> None:
        self._thread.start()
        self._began.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    async def _run(self) -> None:
        connection = await nats.connect(self._place.urls)

        async def respond(message: Msg) -> None:
            for body in self._bodies:
                await connection.publish(message.reply, body.encode())

        await connection.subscribe(f"{self._place.stream}.chains", cb=respond)
        await connection.flush()
        self._began.set()
        while not self._ended.is_set():
            for body in self._bodies:
                await connection.publish(f"{self._place.stream}.gossip", body.encode())
            await asyncio.sleep(GOSSIP_SECONDS)
        await connection.close()


def status_of(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = place.call(f"{place.stream}.nodes")
    return found


def test_a_node_that_differs_from_the_majority_stops_and_does_not_start_again(place: Place) -> None:
    node = place.node("a")
    node.exit_code = 3
    with node:
        send(node, "news", b"one")
        with OtherNodes(place, status_of(place), b="another", c="another"):
            node.wait_for_log("the tables of this node and of b, c are different")
            assert node.process.wait(GUARD_SECONDS) == 3
        assert "this node differs from the majority of the nodes, and stops" in node.log()
    assert place.table("a")["payload"].to_pylist() == [b"one"]
    assert "differed from the majority of the nodes at message 1 (b, c)" in place.refusal("a", code=3)
    assert "differed from the majority" in place.restore("a", "--yes").err


def test_a_node_that_differs_is_found_before_it_serves(place: Place) -> None:
    """As after a restart, if the node was killed before it found out."""
    with place.node("a") as node:
        send(node, "news", b"one")
        status = status_of(place)
    with OtherNodes(place, status, b="another", c="another"):
        refused = place.refusal("a", code=3)
    assert "this node differs from the majority of the nodes, and stops" in refused


def test_without_a_majority_nodes_go_on_with_an_alarm_while_the_others_are_there(place: Place) -> None:
    with place.node("a") as node:
        send(node, "news", b"one")

        def diverged() -> bool:
            return "different" in json.dumps(send_request(node, "polycast/stats"))

        with OtherNodes(place, status_of(place), b="another", c="a third"):
            node.wait_for_log("the tables of this node and of b, c are different")
            send(node, "news", b"two")
        critical = node.log().count("CRITICAL")
        assert critical < 4
        wait_for(lambda: not diverged(), "the end of the alarm")
        assert node.process.poll() is None


def test_of_two_nodes_with_one_name_that_start_together_one_goes_on(place: Place) -> None:
    nodes = [place.node("x", data=data) for data in ("x1", "x2")]
    threads = [threading.Thread(target=enter, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def ended() -> list[Broker]:
        return [node for node in nodes if node.process.poll() is not None]

    try:
        [lost] = wait_for(ended, "the end of one node")
        lost.exit_code = 1
        [other] = [node for node in nodes if node is not lost]
        send(other, "t", b"1")
        assert "with the name x" in lost.log()
        assert ended() == [lost]
    finally:
        for node in nodes:
            node.__exit__(None, None, None)


def enter(node: Broker) -> None:
    try:
        node.__enter__()
    except AssertionError:  # refused before it served
        assert node.process.poll() == 1
