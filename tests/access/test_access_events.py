"""Peers without a known identity cannot fill the log with events."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from access.gate import write_config
from kit.broker import Broker
from kit.hermod import OK, expect_error, message, topics
from kit.wire import wait_for
from polycast.dialects.guard import Guard
from polycast.log.files.folder import log_folder
from polycast.log.read.reader import Reader
from polycast.server.access.tokens import add_token
from polycast.server.dispatch import broker_events

STRANGERS = 50


class Reported(NamedTuple):
    kind: str
    text: dict[str, Any]


def reported(data: Path) -> list[Reported]:
    """All events in the log."""
    reader, found = Reader(log_folder(str(data)), 0), []
    while batch := reader.read():
        for row in batch.to_pylist():
            kind = row["topic"].removeprefix(broker_events.TOPIC)
            found.append(Reported(kind, json.loads(row["payload"]) if kind != row["topic"] else {}))
    reader.close()
    return found


def added_up(found: list[Reported]) -> Counter[tuple[str, str, str]]:
    """What the summaries counted, by event, listener and reason."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in found:
        if row.kind == "summary":
            for part in row.text["events"]:
                counts[part["event"], part["listener"], part["reason"]] += part["count"]
    return counts


def test_connect_events_past_the_rate_are_summed_up_unless_the_identity_is_known(tmp_path: Path) -> None:
    data = tmp_path / "data"
    token = add_token(data, "desk", ["desk may subscribe open.>"])
    config = write_config(tmp_path, more="[events]\nunknown_per_second = 0\n")
    with Broker(f"--config={config}", listen=("hermod.pub", "hermod.sub"), data=data, events=True) as broker:
        for _ in range(STRANGERS):
            with broker.connect("hermod.pub") as stranger:
                stranger.send(message("secret", b""))
                expect_error(stranger, 403)
        with broker.connect("hermod.sub") as desk:
            desk.send(topics("open.a", token=token))
            desk.expect(OK)
        wait_for(
            lambda: added_up(reported(data))["disconnect", "hermod.pub", "left"] == STRANGERS, "the summaries"
        )
        broker.stop()
    found = reported(data)
    kinds = [row.kind for row in found if row.kind in ("connect", "subscribe", "disconnect", "refuse")]
    assert kinds == ["connect", "subscribe", "disconnect"]
    assert len({row.text["connection"] for row in found if row.kind in kinds}) == 1
    counts = added_up(found)
    assert counts.pop(("connect", "hermod.sub", "")) == 1
    assert counts == {
        ("connect", "hermod.pub", ""): STRANGERS,
        ("refuse", "hermod.pub", "Forbidden"): STRANGERS,
        ("disconnect", "hermod.pub", "left"): STRANGERS,
    }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: now.seconds)
    return now


class Somebody(Guard):
    def __init__(self, known: bool) -> None:
        self.known = known


def test_events_of_unknown_peers_are_limited_per_second(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: list[str] = []
    made = broker_events.BrokerEvents(SimpleNamespace(), SimpleNamespace(), 10)  # type: ignore[arg-type]
    made._open = True
    monkeypatch.setattr(made, "_add", lambda kind, payload: text.append(kind))
    monkeypatch.setattr(made, "_start_timer", lambda: None)
    role = SimpleNamespace(dialect="hermod", listener="hermod.pub")

    def connect(known: bool) -> None:
        listener, session = SimpleNamespace(role=role), SimpleNamespace(carries_messages=True)
        peer: Any = Mock(guard=Somebody(known), listener=listener, session=session, close_reason=("left", ""))
        peer.name = "#1 there"
        made.connect(peer)
        made.disconnect(peer)

    for _ in range(100):
        connect(known=False)
    assert Counter(text) == {"connect": 10, "disconnect": 10}
    for _ in range(100):
        connect(known=True)
    assert Counter(text) == {"connect": 110, "disconnect": 110}
    clock.seconds += 1.0
    for _ in range(100):
        connect(known=False)
    assert Counter(text) == {"connect": 120, "disconnect": 120}
    made._time()
    assert text[-1] == "summary"
    made._time()
    assert Counter(text)["summary"] == 1
