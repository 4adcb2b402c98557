"""Which messages somebody heard, and how many, by topic.

Messages are joined with the subscriptions that were in force at their place in the log: distinct topics with
distinct patterns first, then offsets with the offsets between which each subscription held. So it is what the
broker should have delivered live. Replays of subscriptions that begin in the past do not count, nor what a slow
connection lost; `polycast why` tells of both. Where a broker forwards between other brokers, the second name
that a message goes by there is a topic of its own here.

    DIR/deliveries/totals.parquet          one row for each topic: messages, deliveries, subscribers, unheard
    DIR/deliveries/batches/N.parquet       the same after batch N, which batch N + 1 adds to
    DIR/deliveries/batches/N.json          the subscriptions in force by then

A batch that comes again finds what the one before it left, adds the same and writes the same files: each message
counts once. Subscriptions from before the log's first event are not known; `known_from` in what is published is
the offset from which on all of them are, and null where the broker has not said when it started.
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
from polycast.pipelines import SUMMARIES
from polycast.pipelines.deliveries.matching import Span, TopicAudiences, to_spans
from polycast.pipelines.deliveries.subscription_history import SubscriptionHistory, read_events
from polycast.pipelines.runtime.checkpoint import batch_end
from polycast.pipelines.runtime.definition import Pipeline, PipelineRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = RESERVED_PREFIX + "deliveries/"
COLUMNS = "offset long, topic string, source string"
COUNTS = "topic string, messages long, deliveries long, subscribers long, unheard long"
TOTALS = pa.schema([("topic", pa.string())] + [(name.split()[0], pa.int64()) for name in COUNTS.split(", ")[1:]])
SUMS = ("messages", "deliveries", "unheard")
SHOWN = 20
"""So many topics that nobody hears are listed."""


@dataclass(frozen=True, slots=True)
class DeliveriesSettings:
    subscribe: str = setting(">", "patterns of the topics to count, comma-separated")
    publish: bool = setting(
        True, "publish the totals of each topic that had messages to polycast/deliveries/TOPIC"
    )
    trigger_seconds: float = setting(10.0, "the time from one batch to the next", low=0)
    batch_messages: int = setting(2_000_000, "how many messages one batch takes at most", low=1)


# -- what is computed ------------------------------------------------------------------------------------


def count_deliveries(rows: DataFrame, spans: list[Span], links: Collection[str] = ()) -> DataFrame:
    """Grain: one row for each topic that has messages among the rows.

    `subscribers` is the most that heard one message, `unheard` counts the messages that nobody did.
    """
    from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it

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
    columns = [found["topic"], *(found[_aggregate_of(name)] for name in TOTALS.names[1:])]
    return pa.table(columns, schema=TOTALS).sort_by("topic")


def _aggregate_of(name: str) -> str:
    return f"{name}_sum" if name in SUMS else f"{name}_max"


def to_messages(totals: pa.Table, known_from: int | None) -> pa.Table:
    """What is published: a JSON object for each topic."""
    rows = [{**row, "known_from": known_from} for row in totals.to_pylist()]
    payloads = [msgspec.json.encode(row) for row in rows]
    topics = pc.binary_join_element_wise(TOPIC, totals["topic"], "")
    formats = pa.array(["json"] * len(rows), pa.string())
    return pa.table({"topic": topics, "payload": pa.array(payloads, pa.binary()), "format": formats})


# -- what is kept ----------------------------------------------------------------------------------------


class TotalsStore:
    """The state after each batch. The one before the last stays: the last may come again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._batches = folder / "batches"

    def read(self, query: str, batch: int) -> tuple[pa.Table, SubscriptionHistory | None]:
        """As it was after that batch. Another checkpoint begins anew."""
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
    writer = run.write(rows, every=f"{settings.trigger_seconds} seconds")
    return writer.foreachBatch(lambda batch, number: process_batch(run, batch, number)).start()


def process_batch(run: PipelineRun, rows: DataFrame, batch: int) -> None:
    """One batch, as often as Spark likes to bring it."""
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
    lines = [f"{totals.num_rows:,} topics, {undelivered.num_rows:,} of them heard by nobody"]
    for row in undelivered.slice(0, SHOWN).to_pylist():
        lines.append(f"{row['messages']:>12,} messages  {row['topic']}")
    if undelivered.num_rows > SHOWN:
        lines.append(f"and {undelivered.num_rows - SHOWN:,} more in {run.data / 'deliveries' / 'totals.parquet'}")
    return lines


PIPELINE = Pipeline(
    name="deliveries",
    summary=SUMMARIES["deliveries"],
    settings=DeliveriesSettings,
    start=start,
    finish=finish,
    writes="DIR/deliveries/totals.parquet, polycast/deliveries/TOPIC",
    publishes=lambda settings: bool(settings.publish),
)
