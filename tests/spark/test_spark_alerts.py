"""The pipeline `alerts`: a log with one surge and one silence raises exactly these alerts."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kit.broker import Broker
from polycast.pipelines.runtime.runner import prepare_run, run_in_session
from spark.written import BEGAN, Sent, write_log

SECONDS = 400
QUIET = range(300, 340)
BURST = range(200, 210)
"""Seconds without messages on one topic, and with many messages on another."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alerts") / "data"
    sent = []
    for second in range(SECONDS):
        at = second + 0.5
        sent += [Sent("steady", seconds=at)] * 20
        sent += [Sent("bursting", seconds=at)] * (200 if second in BURST else 5)
        sent += [Sent("pausing", seconds=at)] * (0 if second in QUIET else 3)
        sent += [Sent("rare", seconds=at)] * (second % 100 == 0)
        sent += [Sent("late", seconds=at)] * (50 if second > 350 else 0)
    write_log(folder, sent)
    return folder


def test_each_anomaly_raises_one_alert(spark: SparkSession, data: Path) -> None:
    """The run has several batches and publishes the alerts."""
    with Broker(listen=("hermod.pub",), data=data.parent / "broker") as broker:
        at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
        config = prepare_run("alerts", data, at, ["least=5", "batch_messages=6000"], once=True)
        report = run_in_session(spark, config, lambda progress: None, threading.Event())
    assert report.batches > 2
    read = spark.read.format("polycast").option("path", str(data.parent / "broker"))
    rows = read.option("subscribe", "polycast/alerts/>").load().orderBy("offset").collect()
    found = [json.loads(row["payload"]) for row in rows]
    assert [row["topic"] for row in rows] == [f"polycast/alerts/{alert['topic']}" for alert in found]
    assert {row["format"] for row in rows} == {"json"}
    found.sort(key=lambda alert: (alert["window"]["start"], alert["state"]))
    reported = [(alert["topic"], alert["kind"], alert["state"], after(alert["since"])) for alert in found]
    assert reported == [
        ("bursting", "surge", "began", 200),
        ("bursting", "surge", "over", 200),
        ("pausing", "silence", "began", 300),
        ("pausing", "silence", "over", 300),
    ]
    assert [after(alert["window"]["start"]) for alert in found] == [200, 210, 320, 340]
    assert (found[0]["rate"], found[0]["median"], found[0]["window"]["seconds"]) == (200.0, 5.0, 10)
    assert found[0]["z"] > 6


def after(time: str) -> float:
    """Seconds since the start of the log."""
    return datetime.fromisoformat(time).timestamp() - BEGAN / 1e6
