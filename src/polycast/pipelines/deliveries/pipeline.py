"""Counts deliveries per topic.

Joins messages with the subscriptions that were active at their offset: distinct topics with distinct patterns
first, then offsets with the offset ranges of the subscriptions. The result is what the broker should have
delivered live. It excludes replays, and includes messages that a slow connection lost; `polycast why` shows both.
A message that a broker forwards between other brokers under a second topic counts as a message of that topic, too.

    DIR/deliveries/totals.parquet          per topic: messages, deliveries, subscribers, undelivered
    DIR/deliveries/batches/N.parquet       the totals after batch N
    DIR/deliveries/batches/N.json          the active subscriptions after batch N

A repeated batch starts from the files of the batch before it and writes the same files, so each message counts
once. Subscriptions from before the first event of the log are unknown. `known_from` in the published messages is
the offset from which on all subscriptions are known; null if the log has no start event of the broker.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polycast.declare import setting
from polycast.log.files.disk import DISK
from polycast.log.files.folder import log_folder, make_folder
from polycast.model import RESERVED_PREFIX
from polycast.pipelines.deliveries.matching import Span, TopicAudiences, to_spans
from polycast.pipelines.deliveries.subscription_history import SubscriptionHistory, read_events
from polycast.pipelines.runtime.checkpoint import batch_end
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = RESERVED_PREFIX + "deliveries/"
COLUMNS = "offset long, topic string, source string"
COUNTS = "topic string, messages long, deliveries long, subscribers long, undelivered long"
TOTALS = pa.schema([("topic", pa.string())] + [(name.split()[0], pa.int64()) for name in COUNTS.split(", ")[1:]])
SUMS = ("messages", "deliveries", "undelivered")
SHOWN = 20
"""Number of listed topics without deliveries."""


@dataclass(frozen=True, slots=True)
class DeliveriesSettings:
    subscribe: str = setting(">", "comma-separated patterns of topics to count")
    publish: bool = setting(True, "publish the totals of topics with new messages to polycast/deliveries/TOPIC")
    trigger_seconds: float = setting(10.0, "interval between batches", low=0)
    batch_messages: int = setting(2_000_000, "maximum number of messages per batch", low=1)


# -- counting --------------------------------------------------------------------------------------------


def count_deliveries(rows: DataFrame, spans: list[Span], links: Collection[str] = ()) -> DataFrame:
    """Grain: one row per topic.

    `subscribers` is the maximum number of receivers of a message; `undelivered` counts messages without receivers.
    """
    from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        audiences = TopicAudiences(spans, links)
        for batch in batches:
            if batch.num_rows:
                yield to_counts(batch["topic"], audiences.sizes(batch))

    counted = rows.where(~F.col("topic").startswith(TOPIC)).mapInArrow(count, COUNTS)
    sums = [F.sum(name).alias(name) for name in SUMS]
    return counted.groupBy("topic").agg(*sums, F.max("subscribers").alias("subscribers"))


def to_counts(topics: pa.Array, sizes: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
    undelivered = pa.array((sizes == 0).astype(np.int64))
    rows = pa.table({"topic": topics, "size": pa.array(sizes), "silent": undelivered})
    found = rows.group_by("topic").aggregate(
        [("size", "count"), ("size", "sum"), ("size", "max"), ("silent", "sum")]
    )
    columns = [found[name] for name in ("topic", "size_count", "size_sum", "size_max", "silent_sum")]
    [batch] = pa.table(columns, schema=TOTALS).combine_chunks().to_batches()
    return batch


def add(before: pa.Table, counts: pa.Table) -> pa.Table:
    both = pa.concat_tables([before, counts.select(TOTALS.names).cast(TOTALS)])
    found = both.group_by("topic").aggregate([*((name, "sum") for name in SUMS), ("subscribers", "max")])
    columns = [found[f"{name}_sum" if name in SUMS else f"{name}_max"] for name in TOTALS.names[1:]]
    return pa.table([found["topic"], *columns], schema=TOTALS).sort_by("topic")


def to_messages(totals: pa.Table, known_from: int | None) -> pa.Table:
    """One message per topic, with a JSON object."""
    rows = [{**row, "known_from": known_from} for row in totals.to_pylist()]
    payloads = [msgspec.json.encode(row) for row in rows]
    topics = pc.binary_join_element_wise(TOPIC, totals["topic"], "")
    formats = pa.array(["json"] * len(rows), pa.string())
    return pa.table({"topic": topics, "payload": pa.array(payloads, pa.binary()), "format": formats})


# -- state -----------------------------------------------------------------------------------------------


class TotalsStore:
    """Totals and subscriptions after each batch. The files of the last two batches are retained, since Spark may
    repeat the last one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._batches = folder / "batches"

    def read(self, query: str, batch: int) -> tuple[pa.Table, SubscriptionHistory | None]:
        """The state after a batch; empty for a new checkpoint."""
        path = self._batches / query / f"{batch}.parquet"
        if not path.exists():
            return TOTALS.empty_table(), None
        state = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=SubscriptionHistory)
        return pq.read_table(path).cast(TOTALS), state

    def write(self, query: str, batch: int, totals: pa.Table, state: SubscriptionHistory) -> None:
        folder = self._batches / query
        make_folder(folder, DISK)
        state.forget_ended()
        DISK.replace(folder / f"{batch}.json", msgspec.json.encode(state))
        data = _to_parquet(totals)
        DISK.replace(folder / f"{batch}.parquet", data)
        DISK.replace(self.folder / "totals.parquet", data)
        self._clear(query, batch)

    def _clear(self, query: str, batch: int) -> None:
        for other in self._batches.iterdir():
            if other.name != query:
                shutil.rmtree(other)
        for path in (self._batches / query).iterdir():
            if path.stem.isdigit() and int(path.stem) < batch - 1:
                path.unlink()

    def totals(self) -> pa.Table:
        path = self.folder / "totals.parquet"
        return pq.read_table(path) if path.exists() else TOTALS.empty_table()


def _to_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


# -- the pipeline ----------------------------------------------------------------------------------------


def start(run: PipelineRun) -> StreamingQuery:
    settings: DeliveriesSettings = run.settings
    rows = run.messages(settings.subscribe, COLUMNS, maxOffsetsPerTrigger=settings.batch_messages)
    writer = run.write(rows, every=settings.trigger_seconds)
    return writer.foreachBatch(lambda batch, number: process_batch(run, batch, number)).start()


def process_batch(run: PipelineRun, rows: DataFrame, batch: int) -> None:
    """Idempotent: Spark may repeat a batch."""
    store = TotalsStore(run.data / "deliveries")
    before, state = store.read(run.query_id, batch - 1)
    known = state or SubscriptionHistory()
    end = batch_end(run.checkpoint, batch)
    for logged in read_events(log_folder(run.data), known.next, end):
        known.take(logged)
    known.next = end
    counts = count_deliveries(rows, to_spans(known.all()), list(known.links)).toArrow()
    totals = add(before, counts)
    store.write(run.query_id, batch, totals, known)
    if run.settings.publish and counts.num_rows:
        changed = totals.filter(pc.is_in(totals["topic"], value_set=counts["topic"].combine_chunks()))
        run.publish(run.spark.createDataFrame(to_messages(changed, known.known_from)), batch)


def finish(run: PipelineRun) -> list[str]:
    totals = TotalsStore(run.data / "deliveries").totals()
    undelivered = totals.filter(pc.equal(totals["deliveries"], 0)).sort_by([("messages", "descending")])
    lines = [f"{totals.num_rows:,} topics, {undelivered.num_rows:,} without deliveries"]
    for row in undelivered.slice(0, SHOWN).to_pylist():
        lines.append(f"{row['messages']:>12,} messages  {row['topic']}")
    if undelivered.num_rows > SHOWN:
        lines.append(f"and {undelivered.num_rows - SHOWN:,} more in {run.data / 'deliveries' / 'totals.parquet'}")
    return lines


PIPELINE = Pipeline(
    name="deliveries",
    settings=DeliveriesSettings,
    start=start,
    finish=finish,
    writes="DIR/deliveries/totals.parquet, polycast/deliveries/TOPIC",
    publishes=lambda settings: bool(settings.publish),
)
