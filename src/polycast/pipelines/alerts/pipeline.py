"""Detects unusual message rates: surges, drops and silence.

Each topic is compared with its own recent history; see `anomalies`. An alert is published when a condition begins
and when it is over:

    polycast/alerts/TOPIC   {"topic": "orders", "kind": "surge", "state": "began", "rate": 512.0, "median": 20.0,
                             "z": 48.1, "window": {"start": "2026-11-15T20:00:10Z", "seconds": 10},
                             "since": "2026-11-15T20:00:10Z"}

Rates are in messages per second. The pipeline uses the time of the messages, so a run over the log produces the
alerts that a live run would have produced. A window closes when a message on any topic is later than its end by
more than LATE. If nothing is published at all, no window closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from polycast.log.times import MICROS
from polycast.pipelines.alerts.anomalies import AlertsSettings, RateAlert, RateHistory, add, advance, next_window
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun, to_topic

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "polycast/alerts/"
NEEDED = "topic string, time timestamp"
COUNTED = "topic string, window long, messages long, time timestamp"
STATE = "watch binary"
FOUND = "topic string, payload string, format string"
LATE = "2 seconds"
"""Watermark delay: tolerated disorder of message times."""
MILLIS = 1000


# -- counting --------------------------------------------------------------------------------------------


def count(rows: DataFrame, seconds: int) -> DataFrame:
    """Grain: topic, window and partition. `time` is the time of the last message."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted = [_count(batch, seconds) for batch in batches if batch.num_rows]
        if counted:
            whole = pa.concat_tables(counted).group_by(["topic", "window"], use_threads=False)
            yield from _with_names(whole.aggregate([("messages", "sum"), ("time", "max")])).to_batches()

    return rows.mapInArrow(work, COUNTED)


def _count(batch: pa.RecordBatch, seconds: int) -> pa.Table:
    micros = batch["time"].cast(pa.int64())
    windows = pc.divide(micros, seconds * MICROS)
    table = pa.table({"topic": batch["topic"], "window": windows, "time": batch["time"]})
    grouped = table.group_by(["topic", "window"], use_threads=False)
    return _with_names(grouped.aggregate([([], "count_all"), ("time", "max")]))


def _with_names(table: pa.Table) -> pa.Table:
    return table.rename_columns(["topic", "window", "messages", "time"]).combine_chunks()


# -- alerts ----------------------------------------------------------------------------------------------


def update_topic(
    rules: AlertsSettings, key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Runs in the task, for a topic with messages in this batch or with windows that closed since the last one."""
    import pandas as pd

    [topic] = key
    history = msgspec.msgpack.decode(state.get[0], type=RateHistory) if state.exists else RateHistory()
    alerts = advance(history, state.getCurrentWatermarkMs() // (rules.window_seconds * MILLIS), rules)
    if not state.hasTimedOut:
        for frame in frames:
            add(history, frame.groupby("window")["messages"].sum().to_dict())
    state.update((msgspec.msgpack.encode(history),))
    if (window := next_window(history)) is not None:
        state.setTimeoutTimestamp((window + 1) * rules.window_seconds * MILLIS)
    payloads = [to_alert(topic, each, rules) for each in alerts]
    yield pd.DataFrame({"topic": to_topic(TOPIC, topic), "payload": payloads, "format": "json"})


def to_alert(topic: str, alert: RateAlert, rules: AlertsSettings) -> str:
    report = {
        "topic": topic,
        "kind": alert.kind,
        "state": "began" if alert.began else "over",
        "rate": alert.messages / rules.window_seconds,
        "median": alert.median / rules.window_seconds,
        "z": round(alert.z, 2),
        "window": {"start": _to_time(alert.window, rules), "seconds": rules.window_seconds},
        "since": _to_time(alert.since, rules),
    }
    return msgspec.json.encode(report).decode()


def _to_time(window: int, rules: AlertsSettings) -> str:
    return datetime.fromtimestamp(window * rules.window_seconds, UTC).isoformat().replace("+00:00", "Z")


def find_alerts(counted: DataFrame, rules: AlertsSettings) -> DataFrame:
    """Grain: one message per alert that begins or is over. Takes a stream of counts."""
    return (
        counted.withWatermark("time", LATE)
        .groupBy("topic")
        .applyInPandasWithState(
            partial(update_topic, rules), FOUND, STATE, "append", GroupStateTimeout.EventTimeTimeout
        )
    )


def start(run: PipelineRun) -> StreamingQuery:
    settings: AlertsSettings = run.settings
    rows = run.messages(settings.subscribe, NEEDED, maxOffsetsPerTrigger=settings.batch_messages)
    alerts = find_alerts(count(rows, settings.window_seconds), settings)
    return run.write(alerts).foreachBatch(run.publish).start()


PIPELINE = Pipeline(
    "alerts", AlertsSettings, start, writes="polycast/alerts/TOPIC", publishes=lambda settings: True
)
