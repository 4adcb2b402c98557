"""Requests to routes of other nodes: limits hold across nodes, and a node that is lost fails its requests soon."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from access.gate import write_config
from cluster.trio import LISTEN, PATIENCE
from kit.broker import Broker
from kit.nats import Servers
from kit.subscribers import send_request
from kit.ubre import UbrePeer
from kit.wire import wait_for
from polycast.cluster import requests as node_requests
from polycast.cluster.peers import RECENT_SECONDS, RecentNodes
from polycast.cluster.requests import OPEN_SHARE, ClusterRequests
from polycast.cluster.stream import Stream
from polycast.model import Body
from polycast.server.core import Core
from polycast.server.dispatch.request_handler import QUERIES_AT_MOST, QUERY, Requester

REQUESTS = 8
SHARE = 2
"""A quarter of the open requests."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("server"), 1) as running:
        yield running


class Pair:
    """Two nodes of a cluster of their own."""

    def __init__(self, server: Servers, folder: Path, stack: ExitStack, *more: str) -> None:
        self._stack = stack
        stream = folder.name.replace(".", "-")
        self._flags = [f"--cluster={server.urls}", f"--set=cluster.stream={stream}", *more]
        self._flags.append("--set=cluster.max_bytes=4MiB")
        self._folder = folder
        self.nodes = {name: self.start(name) for name in ("a", "b")}
        for node in self.nodes.values():
            self.wait_for_nodes(node)

    def start(self, name: str) -> Broker:
        node = Broker(*self._flags, f"--node={name}", listen=LISTEN, data=self._folder / name)
        return self._stack.enter_context(node)

    def wait_for_nodes(self, node: Broker) -> None:
        wait_for(lambda: len(send_request(node, "polycast/stats")["nodes"]) == 2, "both nodes", PATIENCE)

    def connect(self, name: str) -> UbrePeer:
        return self._stack.enter_context(UbrePeer(self.nodes[name].ports["ubre"]))

    def serve(self, name: str, route: str) -> UbrePeer:
        responder = self.connect(name)
        responder.send_message(subscribe=route, body={"serve": True})
        responder.flush()
        return responder


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def send(peer: UbrePeer, route: str, *numbers: int, body: Any = None) -> None:
    for number in numbers:
        peer.send_message(request=route, id=number, body=body)


def read(peer: UbrePeer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(peer.read_until(b"\n"))
    return found


def test_each_connection_of_another_node_has_its_share(server: Servers, tmp_path: Path, stack: ExitStack) -> None:
    pair = Pair(server, tmp_path, stack, f"--set=ubre.requests={REQUESTS}")
    responder = pair.serve("b", "work")
    greedy, modest = pair.connect("a"), pair.connect("a")
    send(greedy, "work", *range(SHARE + 1))
    assert read(greedy)["body"] == "Busy"
    received = [read(responder)["id"] for _ in range(SHARE)]
    send(modest, "work", 1, body="mine")
    request = read(responder)
    responder.send_message(success=request["id"], body="done")
    modest.expect_message(success=1, body="done")
    for number in received:
        responder.send_message(success=number, body="late")
    assert [read(greedy)["body"] for _ in range(SHARE)] == ["late"] * SHARE
    send(greedy, "work", 9)
    assert read(responder)["request"] == "work"


def test_an_identity_has_one_share_at_all_nodes(server: Servers, tmp_path: Path, stack: ExitStack) -> None:
    rules = ("guest may publish work", "guest may serve work", "guest may admin")
    config = write_config(tmp_path, *rules)
    pair = Pair(server, tmp_path, stack, f"--set=ubre.requests={REQUESTS}", f"--config={config}")
    responder = pair.serve("b", "work")
    here, there = pair.connect("b"), pair.connect("a")
    send(here, "work", 1)
    read(responder)
    send(there, "work", 1)
    read(responder)
    for peer in (pair.connect("a"), pair.connect("b")):
        send(peer, "work", 2)
        peer.expect_message(fail=2, body="Busy")


def test_the_limit_of_open_queries_holds_across_nodes(server: Servers, tmp_path: Path, stack: ExitStack) -> None:
    pair = Pair(server, tmp_path, stack)
    responder = pair.serve("b", QUERY)
    first, second = pair.connect("a"), pair.connect("b")
    for number in range(QUERIES_AT_MOST):
        send((first, second)[number % 2], QUERY, number, body={"query": "SELECT 1"})
    received = [read(responder)["id"] for _ in range(QUERIES_AT_MOST)]
    for peer in (first, second):
        send(peer, QUERY, 10, body={"query": "SELECT 1"})
        peer.expect_message(fail=10, body="Busy")
    responder.send_message(success=received[0], body=[])
    send(first, QUERY, 11, body={"query": "SELECT 1"})
    assert read(responder)["request"] == QUERY


def test_a_request_without_a_response_times_out(server: Servers, tmp_path: Path, stack: ExitStack) -> None:
    pair = Pair(server, tmp_path, stack, "--set=ubre.request_seconds=1")
    responder, requester = pair.serve("b", "work"), pair.connect("a")
    send(requester, "work", 1)
    read(responder)
    requester.expect_message(fail=1, body="Timeout")


def test_a_lost_node_fails_its_requests_soon(server: Servers, tmp_path: Path, stack: ExitStack) -> None:
    """The time limit of requests is 30 s. The second request has a node that is back before it is missed."""
    pair = Pair(server, tmp_path, stack)
    for restarts in (False, True):
        responder, requester = pair.serve("b", "work"), pair.connect("a")
        send(requester, "work", 1)
        read(responder)
        began = time.monotonic()
        pair.nodes["b"].kill()
        if restarts:
            pair.nodes["b"] = pair.start("b")
        requester.expect_message(fail=1, body="Gone")
        assert time.monotonic() - began < RECENT_SECONDS + 5
        if not restarts:
            pair.nodes["b"] = pair.start("b")
            pair.wait_for_nodes(pair.nodes["a"])


def test_one_identity_cannot_use_all_forwards_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_requests, "Routes", lambda core: None)
    core = SimpleNamespace(node="a", request_handler=None, outbox=SimpleNamespace(flush=lambda: None))
    found = ClusterRequests(cast(Stream, None), cast(Core, core), RecentNodes())
    ending = asyncio.Event()

    async def wait(route: str, body: Body, requester: Requester) -> tuple[bool, Body]:
        await ending.wait()
        return True, body

    async def run() -> None:
        monkeypatch.setattr(found, "_request_other", wait)
        responses: list[tuple[bool, bytes]] = []

        def request(connection: str, identity: str, restricted: bool) -> None:
            requester = Requester(connection, identity, restricted)
            found._request("r", Body(), requester, lambda ok, body: responses.append((ok, body.payload)))

        for number in range(OPEN_SHARE + 1):
            request(f"a#{number}", "greedy", True)
        assert responses == [(False, b"Busy")]
        request("a#modest", "modest", True)
        request("a#alone", "greedy", False)
        assert len(responses) == 1 and found.count_open() == OPEN_SHARE + 2
        ending.set()
        while found.count_open():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [ok for ok, _ in responses] == [False, *[True] * (OPEN_SHARE + 2)]

    asyncio.run(run())
