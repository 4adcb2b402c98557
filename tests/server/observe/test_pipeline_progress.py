"""Progress of pipelines: reports, expiry, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.broker import Broker
from kit.replay import metrics, numbered, publish
from kit.subscribers import LISTEN, send_request
from kit.ubre import UbrePeer
from polycast.client import connect
from polycast.dialects.client_requests import to_body
from polycast.server.stats.pipeline_progress import (
    ERROR_CHARACTERS,
    PIPELINES_AT_MOST,
    SECONDS,
    PipelineProgress,
    Position,
)


def refusal(broker: Broker, body: Any) -> str:
    with UbrePeer(broker.ports["ubre"]) as peer:
        return peer.refusal("polycast/positions", body)


# -- remembered reports ----------------------------------------------------------------------------------


def queries(positions: PipelineProgress, now: float) -> list[str]:
    return [position.query for _, position in positions.known(now)]


def test_the_last_report_of_each_pipeline() -> None:
    positions = PipelineProgress()
    for offset in (1, 2, 3):
        positions.put(Position("b", offset), 10.0 + offset)
    positions.put(Position("a", 7, 2.5, "failed", "no room", 4, 1.5), 20.0)
    assert positions.to_rows(10, 23.0) == [
        {
            "query": "a",
            "offset": 7,
            "lag": 3,
            "batch": 4,
            "input_rows_per_second": 1.5,
            "rows_per_second": 2.5,
            "state": "failed",
            "error": "no room",
            "age_seconds": 3.0,
        },
        {
            "query": "b",
            "offset": 3,
            "lag": 7,
            "batch": None,
            "input_rows_per_second": None,
            "rows_per_second": None,
            "state": "running",
            "error": "",
            "age_seconds": 10.0,
        },
    ]


def test_lag_is_never_negative() -> None:
    assert Position("a", 12).lag(10) == 0


def test_a_pipeline_without_reports_expires_after_an_hour() -> None:
    positions = PipelineProgress()
    positions.put(Position("old", 1), 0.0)
    positions.put(Position("new", 1), 1.0)
    assert queries(positions, SECONDS - 0.5) == ["new", "old"]
    assert queries(positions, SECONDS) == ["new"]
    positions.put(Position("new", 2), SECONDS)
    assert queries(positions, SECONDS + 2) == ["new"]


def test_the_number_of_pipelines_is_limited() -> None:
    positions = PipelineProgress()
    for number in range(PIPELINES_AT_MOST + 5):
        positions.put(Position(f"{number:06d}", number), 0.0)
    assert queries(positions, 0.0) == [f"{number:06d}" for number in range(5, PIPELINES_AT_MOST + 5)]


def test_the_last_error_is_remembered_after_a_restart() -> None:
    positions = PipelineProgress()
    for position in (Position("a", 1, state="failed", error="no room"), Position("a", 2), Position("b", 1)):
        positions.put(position, 0.0)
    reported = {row["query"]: (row["state"], row["error"]) for row in positions.to_rows(2, 0.0)}
    assert reported == {"a": ("running", "no room"), "b": ("running", "")}
    positions.put(Position("a", 2, state="failed", error="no broker"), 0.0)
    assert positions.to_rows(2, 0.0)[0]["error"] == "no broker"


def test_errors_are_truncated() -> None:
    positions = PipelineProgress()
    positions.put(Position("a", 1, error="x" * 100_000), 0.0)
    assert positions.to_rows(1, 0.0)[0]["error"] == "x" * ERROR_CHARACTERS


# -- by request ------------------------------------------------------------------------------------------


def test_reports_by_hermod_appear_in_metrics(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN) as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, numbered("t", range(10)))
        assert metrics(broker)["polycast_pipeline_lag"] == {}
        with connect("hermod", f"tcp://127.0.0.1:{broker.ports['hermod.pub']}", publishing=True) as client:
            speeds = {"input_rows_per_second": 0.5, "rows_per_second": 1}
            reported = to_body({"query": 'a "b"', "offset": 4, "batch": 3, "state": "running", **speeds})
            assert client.request("polycast/positions", reported).value == {"lag": 6}
        assert metrics(broker)["polycast_pipeline_lag"] == {(("pipeline", 'a "b"'),): 6}
        publish(publisher, numbered("t", range(5)))
        [row] = send_request(broker, "polycast/pipelines")["pipelines"]
        assert row.pop("age_seconds") >= 0
        expected = {
            "query": 'a "b"',
            "offset": 4,
            "lag": 11,
            "batch": 3,
            "input_rows_per_second": 0.5,
            "rows_per_second": 1.0,
            "state": "running",
            "error": "",
        }
        assert row == expected
        send_request(broker, "polycast/positions", {"query": 'a "b"', "offset": 15, "state": "stopped"})
        assert metrics(broker)["polycast_pipeline_lag"] == {(("pipeline", 'a "b"'),): 0}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "query"),
        ({"query": "a"}, "offset"),
        ({"query": "", "offset": 1}, "length"),
        ({"query": "x" * 257, "offset": 1}, "length"),
        ({"query": "a", "offset": -1}, "offset"),
        ({"query": "a", "offset": 1, "state": "lost"}, "lost"),
        ({"query": "a", "offset": 1, "rows_per_second": -1}, "rows_per_second"),
        ({"query": "a", "offset": 1, "input_rows_per_second": "much"}, "input_rows_per_second"),
        ({"query": "a", "offset": 1, "batch": -1}, "batch"),
        ({"query": "a", "offset": 1, "rows": 1}, "rows"),
    ],
)
def test_bad_requests(broker_with_ubre: Broker, body: Any, words: str) -> None:
    response = refusal(broker_with_ubre, body)
    assert response.startswith("BadRequest") and words in response, response


@pytest.fixture(scope="module")
def broker_with_ubre() -> Any:
    with Broker(listen=LISTEN) as running:
        yield running


def test_without_a_log_the_lag_is_reported_too(broker_with_ubre: Broker) -> None:
    assert send_request(broker_with_ubre, "polycast/positions", {"query": "a", "offset": 5}) == {"lag": 0}
