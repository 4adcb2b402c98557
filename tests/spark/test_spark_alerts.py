"""The pipeline `alerts`: a log with a burst and a silence in it tells of exactly these, whatever the batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from polycast.pipelines.alerts import PIPELINE, Settings, count, find_alerts, rules_of
from polycast.pipelines.base import Run
from spark.written import BEGAN, Said, write_log

SECONDS = 400
QUIET = range(300, 340)
BURST = range(200, 210)
"""The seconds in which a topic says nothing, and another one says much."""
SETTINGS = Settings(least=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("alerts")
    said = []
    for second in range(SECONDS):
        at = second + 0.5
        said += [Said("steady", seconds=at)] * 20
        said += [Said("bursting", seconds=at)] * (200 if second in BURST else 5)
        said += [Said("pausing", seconds=at)] * (0 if second in QUIET else 3)
        said += [Said("rare", seconds=at)] * (second % 100 == 0)
        said += [Said("late", seconds=at)] * (50 if second > 350 else 0)
    write_log(folder, said)
    return folder


@pytest.mark.parametrize("batch", [100_000, 3_000])
def test_what_is_extraordinary_is_told_once(spark: SparkSession, data: Path, tmp_path: Path, batch: int) -> None:
    run = Run(spark, PIPELINE, data, "", SETTINGS, once=True)
    rows = run.messages(">", "topic string, time timestamp", maxOffsetsPerTrigger=batch)
    found: list[dict[str, Any]] = []

    def keep(alerts: DataFrame, number: int) -> None:
        for row in alerts.collect():
            assert row["format"] == "json"
            alert = json.loads(row["payload"])
            assert row["topic"] == f"polycast/alerts/{alert['topic']}"
            found.append(alert)

    alerts = find_alerts(count(rows, SETTINGS.window_seconds), rules_of(SETTINGS))
    writer = alerts.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    writer.foreachBatch(keep).start().awaitTermination()
    found.sort(key=lambda alert: (alert["window"]["start"], alert["state"]))
    told = [(alert["topic"], alert["kind"], alert["state"], after(alert["since"])) for alert in found]
    assert told == [
        ("bursting", "surge", "began", 200),
        ("bursting", "surge", "over", 200),
        ("pausing", "silence", "began", 300),
        ("pausing", "silence", "over", 300),
    ]
    assert [after(alert["window"]["start"]) for alert in found] == [200, 210, 320, 340]
    assert (found[0]["rate"], found[0]["median"], found[0]["window"]["seconds"]) == (200.0, 5.0, 10)
    assert found[0]["z"] > 6


def after(time: str) -> float:
    """In seconds since the log began."""
    from datetime import datetime

    return datetime.fromisoformat(time).timestamp() - BEGAN / 1e6
