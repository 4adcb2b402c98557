"""Refusals of a broker with a log: batches, stages, history, and Spark routes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from access.gate import BASE, write_config
from kit.broker import Broker
from kit.hermod import message
from kit.ubre import line
from kit.wire import Peer
from polycast.broker.requests import text_body
from polycast.model import Body, Format
from polycast.server.api.routes import Routes


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("kept")
    config = write_config(
        folder, *BASE, "guest may subscribe spark/sql", "guest may publish spark/sql", "loopback may everything"
    )
    flags = (f"--config={config}", f"--listen=ubre=ipc://{folder}/ubre")
    with Broker(*flags, listen=("hermod.pub", "ubre"), data=folder / "data") as started:
        yield started


def text(peer: Peer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(peer.read_until(b"\n"))
    return found


def test_an_atomic_batch_is_refused_as_a_whole(broker: Broker) -> None:
    with broker.connect("hermod.pub") as peer:
        peer.send(
            b'{"batch_type": "Count", "count": 2, "batch_id": "b"}'
            + message("open.a", b"")
            + message("secret", b"")
        )
        reply = text(peer)
        assert (reply["code"], reply["count"], reply["message"]) == (403, 0, "Forbidden")
        peer.send(b'{"batch_type": "Count", "count": 1, "batch_id": "b"}' + message("open.a", b""))
        assert text(peer) == {"status": "OK", "count": 1}


def to_stage(topics: list[str]) -> bytes:
    batch = pa.record_batch({"topic": topics, "payload": [b"x"] * len(topics)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    header = {"batch_type": "Stage", "batch_id": "s", "stage": "1", "payload_size": len(data), "checksum": ""}
    return json.dumps(header).encode() + data


def test_stages(broker: Broker) -> None:
    with broker.connect("hermod.pub") as peer:
        peer.send(to_stage(["open.a", "open.b", "secret"]))
        assert text(peer)["code"] == 403
        peer.send(to_stage(["open.a", "open.b"]))
        assert text(peer) == {"status": "OK", "count": 2}


def test_history_needs_the_right_to_subscribe(broker: Broker) -> None:
    with broker.connect("ubre") as peer:
        for pattern, allowed in (("open.h", True), ("open.>", True), (">", False), ("secret", False)):
            peer.send(line(request="polycast/history", id=1, body={"pattern": pattern}))
            reply = text(peer)
            assert ("success" in reply) == allowed, reply
            assert allowed or reply == {"fail": 1, "body": "Forbidden"}
        for route in ("polycast/rows", "polycast/log", "polycast/offsets"):
            peer.send(line(request=route, id=2, body={}))
            assert text(peer) == {"fail": 2, "body": "Forbidden"}


def test_spark_routes_need_admin(broker: Broker) -> None:
    with broker.connect("ubre") as peer, broker.connect_file("ubre") as here:
        here.send(line(subscribe="spark/sql", body={"serve": True}) + line(request="polycast/stats", id=1))
        here.read_until(b"\n")
        peer.send(line(request="spark/sql", id=1, body={"query": "SELECT 1"}))
        assert text(peer) == {"fail": 1, "body": "Forbidden"}
        peer.send(line(subscribe="spark/sql", body={"serve": True}))
        assert peer.expect_closed() == b""


@pytest.mark.parametrize("may", [True, False], ids=["has it", "lost it"])
def test_a_history_request_is_forbidden_if_the_right_was_lost_while_it_waited(
    may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[bool, Body], None]] = []
    responses: list[tuple[bool, Body]] = []
    routes = object.__new__(Routes)
    monkeypatch.setattr(routes, "_log_parts", lambda requester: (Mock(durable_next=0), Mock()))
    monkeypatch.setattr(routes, "_read_log", lambda requester, respond, *rest: waiting.append(respond))
    requester = Mock()
    requester.guard.may_subscribe.return_value = True
    request = Body(b'{"pattern": "a"}', Format.JSON)
    routes._history(requester, request, 0.0, lambda success, body: responses.append((success, body)))
    requester.guard.may_subscribe.return_value = may
    found = Body(b"[]", Format.JSON)
    waiting[0](True, found)
    assert responses == [(True, found) if may else (False, text_body("Forbidden"))]
