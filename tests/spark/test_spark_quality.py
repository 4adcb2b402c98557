"""The pipeline `quality` over a log with known problems, in several batches."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kit.broker import Broker
from polycast.pipelines.quality import pipeline as quality
from polycast.pipelines.quality.inspection import REFUSALS
from polycast.pipelines.quality.pipeline import PIPELINE, QualitySettings
from polycast.pipelines.runtime.definition import PipelineRun
from polycast.pipelines.runtime.runner import prepare_run, run_in_session
from spark.written import Sent, write_log

BATCH = 250
SETTINGS = QualitySettings(learn=50, gone=100, batch_messages=BATCH)


def config(number: int) -> bytes:
    """One field appears after 200 messages, another changes its type after 300, a third is gone after 250."""
    fields: dict[str, Any] = {"id": number, "price": 1.5 if number < 300 else "1.5", "items": [{"n": 1}]}
    if number >= 200:
        fields["currency"] = {"code": "EUR"}
    if number < 250:
        fields["old"] = None if number % 2 else True
    return json.dumps(fields).encode()


def sent() -> list[Sent]:
    found = []
    for number in range(400):
        found.append(Sent("orders", config(number), number, "json"))
        found.append(Sent("lines", b"[INFO] nothing", number, "text"))
        late = number + 7 if number >= 150 else number
        twice = late - 2 if number >= 350 else late
        found.append(Sent("holes", b"\x00", number, sequence=twice))
    found.insert(600, Sent("orders", b'{"id": ', 200, "json"))
    refusal = {"connection": "hermod.pub-9", "reason": "checksum does not fit", "count": 3}
    for about in (refusal, refusal, {**refusal, "reason": "topic not UTF-8"}):
        found.append(Sent("polycast/events/refuse", json.dumps(about).encode(), 400, "json"))
    return found


@pytest.fixture(scope="module")
def reported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The messages of each batch of a run. Each batch but the first is repeated, as after a crash."""
    data: Path = tmp_path_factory.mktemp("quality")
    write_log(data, sent(), gaps=[(450, 40, "unclean stop")])
    run = PipelineRun(spark, PIPELINE, data, "", SETTINGS, once=True)
    published: list[list[tuple[str, Any]]] = []

    def take(rows: Any, batch: int) -> None:
        first = quality.process_batch(run, rows, batch)
        assert quality.process_batch(run, rows, batch) == first
        published.append([(topic, json.loads(payload)) for topic, payload, _ in first])

    rows = run.messages(f">,{REFUSALS}", quality.NEEDED, maxOffsetsPerTrigger=BATCH)
    run.write(rows).foreachBatch(take).start().awaitTermination()
    return {"data": data, "published": published, "lines": quality.finish(run)}


def last(reported: dict[str, Any], topic: str) -> Any:
    found = [report for batch in reported["published"] for name, report in batch if name == topic]
    return found[-1] if found else None


def test_gaps_and_repeats(reported: dict[str, Any]) -> None:
    holes = last(reported, "polycast/quality/holes")
    assert (holes["messages"], holes["gaps"], holes["missing"], holes["repeats"]) == (400, 1, 7, 2)
    [gap] = holes["last_gaps"]
    assert (gap["first"], gap["next"], gap["reason"]) == (150, 157, "unclean stop")


def test_invalid_json(reported: dict[str, Any]) -> None:
    orders = last(reported, "polycast/quality/orders")
    assert (orders["json"], orders["not_json"]) == (400, 1)
    assert last(reported, "polycast/quality/lines") is None, "these lines are not declared as JSON"


def test_schema_changes(reported: dict[str, Any]) -> None:
    changes = last(reported, "polycast/quality/orders")["last_changes"]
    assert [(change["kind"], change["field"], change["type"]) for change in changes] == [
        ("appeared", "$.currency", "object"),
        ("changed", "$.price", "string"),
        ("gone", "$.old", "boolean"),
    ]


def test_wrong_checksums_are_counted_by_connection(reported: dict[str, Any]) -> None:
    report = last(reported, "polycast/quality/polycast/events/refuse")
    assert report["checksums"] == {"hermod.pub-9": {"checksum does not fit": 6}}


def test_only_new_problems_are_published(reported: dict[str, Any]) -> None:
    assert len(reported["published"]) > 3
    assert reported["published"][0] == []
    assert sum(name == "polycast/quality/holes" for batch in reported["published"] for name, _ in batch) == 2


def test_report_page(reported: dict[str, Any]) -> None:
    first, head, *lines = reported["lines"]
    page = Path(first.removeprefix("report: "))
    assert page == reported["data"].absolute() / "quality" / "report.html"
    assert head.split() == ["topic", "messages", "missing", "repeats", "not", "JSON", "changes"]
    assert [line.split() for line in lines[:3]] == [
        ["holes", "400", "7", "2", "0", "0"],
        ["orders", "401", "0", "0", "1", "3"],
        ["lines", "400", "0", "0", "0", "0"],
    ]
    assert lines[-1] == "6 messages rejected because of a wrong checksum"
    text = page.read_text()
    assert text.count("<svg") == 3
    for expected in ("150 to 156", "unclean stop", "$.currency", "hermod.pub-9"):
        assert expected in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_run_publishes_reports(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "data", sent())
    with Broker(listen=("hermod.pub",), data=tmp_path / "broker") as broker:
        at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
        config = prepare_run("quality", tmp_path / "data", at, ["gone=100"], once=True)
        report = run_in_session(spark, config, lambda progress: None, threading.Event())
    assert report.lines[0].startswith("report: ")
    read = spark.read.format("polycast").option("path", str(tmp_path / "broker"))
    rows = read.option("subscribe", "polycast/quality/>").load().collect()
    found = {row["topic"].removeprefix("polycast/quality/"): json.loads(row["payload"]) for row in rows}
    assert found.keys() == {"orders", "holes", "polycast/events/refuse"}
    assert len(rows) == len(found)
    assert found["holes"]["last_gaps"][0]["reason"] == "", "the log knows nothing of this one"
