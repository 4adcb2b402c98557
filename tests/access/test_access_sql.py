"""SQL requests: forwarded with the identity of the requester, and logged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from access.gate import gated
from kit.broker import Broker
from kit.ubre import line
from kit.wire import Peer

RULE = "guest may query open.>"


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with gated(tmp_path_factory.mktemp("sql"), RULE, listen=("ubre",)) as started:
        yield started


def read_reply(peer: Peer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(peer.read_until(b"\n"))
    return found


def test_a_query_is_logged_with_its_identity(broker: Broker) -> None:
    """On one line, escaped and truncated."""
    forged = "SELECT 1 --\n2026-11-16 INFO all is well\r\x1b[2J\N{LINE SEPARATOR}\N{SNOWMAN}" + "x" * 1000
    with broker.connect("ubre") as peer:
        peer.send(line(request="spark/sql", id=1, body={"query": forged}))
        assert read_reply(peer)["fail"] == 1  # no responder serves the route
    logged = broker.wait_for_log("guest queries ")
    assert r"'SELECT 1 --\n2026-11-16 INFO all is well\r\x1b[2J\u2028\u2603xxx" in logged
    assert logged.endswith("xxx'...") and len(logged) < 800
    assert len(logged.splitlines()) == 1


@pytest.mark.parametrize("body", [{"query": 7}, {}, [], None])
def test_an_invalid_query_is_logged_too(broker: Broker, body: Any) -> None:
    with broker.connect("ubre") as peer:
        peer.send(line(request="spark/sql", id=1, body=body))
        assert read_reply(peer)["fail"] == 1
    assert "guest queries " in broker.wait_for_log("guest queries ")
