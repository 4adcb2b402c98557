"""Traffic statistics per topic, dialect and time window.

Counts messages and bytes, and computes percentiles of payload sizes, the number of sources, and the delay from a
message's time to its processing. Percentiles are exact for sizes up to 127 bytes and within 0.8 % above; the
number of sources is within 2 %.

After each batch, every changed window is published to polycast/traffic/TOPIC with its current totals: of several
messages for the same window, topic and dialect, the latest is valid. DIR/traffic has each window, topic and
dialect once, with its latest values. Messages more than late_seconds behind the watermark are not counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

from polycast.declare import setting
from polycast.log.files.folder import log_folder
from polycast.log.read.query import RowFilter
from polycast.model import parse_patterns
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun
from polycast.pipelines.runtime.progress import COUNTED
from polycast.pipelines.traffic.counts import PARTIALS, to_counter
from polycast.pipelines.traffic.windows import upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

MIB = 1024 * 1024
SOURCES_ERROR = 0.02
KEYS = ["window", "topic", "dialect"]


@dataclass(frozen=True, slots=True)
class TrafficSettings:
    subscribe: str = setting(">", "comma-separated patterns of topics to count")
    window_seconds: int = setting(60, "length of a window", low=1)
    late_seconds: float = setting(60.0, "watermark delay; messages that are later are not counted", low=0)
    trigger_seconds: float = setting(5.0, "interval between batches", low=0)
    batch_bytes: int = setting(1024 * MIB, "maximum bytes of the log per batch", low=1)
    publish: bool = setting(True, "publish results; false: write files only, without a broker")


def count(stretches: DataFrame, log: Path, subscribe: str, seconds: int) -> DataFrame:
    """Grain: window, topic, dialect, source and size, for each batch of messages in a worker."""
    wanted = RowFilter(parse_patterns(subscribe))
    return stretches.mapInArrow(to_counter(log, wanted, seconds, time.time), PARTIALS)


def sum_up(counted: DataFrame, seconds: int, late_seconds: float = 0.0) -> DataFrame:
    """Grain: window, topic and dialect. `counted` may have several rows per group."""
    counted = counted.withWatermark("time", f"{round(late_seconds * 1000)} milliseconds")
    groups = counted.groupBy(F.window("time", f"{seconds} seconds").alias("span"), "topic", "dialect")
    summed = groups.agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.percentile("size", F.array(F.lit(0.5), F.lit(0.9), F.lit(0.99)), F.col("messages")).alias("sizes"),
        F.max("size_max").alias("size_max"),
        F.approx_count_distinct("source", SOURCES_ERROR).alias("sources"),
        F.sum("delay_sum_ms").alias("delay_sum_ms"),
        F.max("delay_max_ms").alias("delay_max_ms"),
    )
    return summed.select(
        F.col("span.start").alias("window"),
        F.lit(seconds).alias("seconds"),
        "topic",
        "dialect",
        "messages",
        F.round(F.col("messages") / seconds, 3).alias("messages_per_second"),
        "bytes",
        *(F.round(F.col("sizes")[n]).cast("long").alias(f"size_p{p}") for n, p in enumerate((50, 90, 99))),
        "size_max",
        "sources",
        F.round(F.col("delay_sum_ms") / F.col("messages"), 3).alias("delay_mean_ms"),
        F.round("delay_max_ms", 3).alias("delay_max_ms"),
    )


def to_messages(rows: DataFrame) -> DataFrame:
    """Grain: one message per row."""
    return rows.select(
        F.concat(F.lit("polycast/traffic/"), "topic").alias("topic"),
        F.to_json(F.struct(*rows.columns)).alias("payload"),
        F.lit("json").alias("format"),
    )


def start(run: PipelineRun) -> StreamingQuery:
    settings: TrafficSettings = run.settings
    stretches = run.messages(settings.subscribe, stretches="true", maxBytesPerTrigger=settings.batch_bytes)
    counted = count(stretches, log_folder(run.data.absolute()), settings.subscribe, settings.window_seconds)
    counted = counted.observe(COUNTED, F.sum("messages").alias("rows"))
    rows = sum_up(counted, settings.window_seconds, settings.late_seconds)
    writer = run.write(rows, "update", every=settings.trigger_seconds)
    return writer.foreachBatch(lambda batch, number: write_windows(run, batch, number)).start()


def write_windows(run: PipelineRun, rows: DataFrame, batch: int) -> None:
    """Idempotent: Spark may repeat a batch."""
    found = rows.toArrow()
    if not found.num_rows:
        return
    upsert(run.data.absolute() / "traffic", found, KEYS)
    if run.settings.publish:
        run.publish(to_messages(rows.sparkSession.createDataFrame(found)), batch)


def finish(run: PipelineRun) -> list[str]:
    folder = run.data.absolute() / "traffic"
    return [f"{folder}: {len(list(folder.glob('*/*.parquet'))):,} files, one per hour"]


PIPELINE = Pipeline(
    name="traffic",
    settings=TrafficSettings,
    start=start,
    finish=finish,
    writes="polycast/traffic/TOPIC, DIR/traffic/date=YYYY-MM-DD/HH.parquet",
    publishes=lambda settings: bool(settings.publish),
)
