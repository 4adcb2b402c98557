"""A pipeline: a name, settings, and a function that starts a streaming query.

The computation is a pure function from DataFrame to DataFrame in the pipeline's own module, tested without a
stream. This module has what all pipelines share: the source, the checkpoint, and publishing exactly once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polycast.model import Limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DIGEST_DIGITS = 16
LIMIT_BYTES = Limits().topic_bytes


@dataclass(frozen=True)
class Pipeline:
    name: str
    settings: type
    """A frozen dataclass of `declare.setting` fields, all with a default."""
    start: Callable[[PipelineRun], StreamingQuery]
    finish: Callable[[PipelineRun], list[str]] | None = None
    """Called after a run with `--once`: writes reports, returns lines to print."""
    writes: str = ""
    """Folders and topics that receive the results; documentation only."""
    publishes: Callable[[Any], bool] = lambda settings: False
    """Whether these settings need a broker. If it is unreachable, the run fails before Spark starts."""
    summary: str = ""
    """Set by `pipelines.find`."""


@dataclass(frozen=True)
class PipelineRun:
    spark: SparkSession
    pipeline: Pipeline
    data: Path
    """The data folder, with `log` and `checkpoints`."""
    at: str
    """Hermod address of the broker that receives the results."""
    settings: Any
    once: bool = False
    rows: dict[int, int] = field(default_factory=dict)
    """Rows by batch, for pipelines that bypass Spark's row count."""

    @property
    def checkpoint(self) -> Path:
        return self.data.absolute() / "checkpoints" / self.pipeline.name

    def messages(self, subscribe: str = ">", columns: str = "", **options: object) -> DataFrame:
        """The log as a stream, by default from its first offset.

        `columns` is a schema, such as "offset long, topic string"; only these columns are read.
        """
        reader = self.spark.readStream.format("polycast").option("path", str(self.data.absolute() / "log"))
        reader = reader.schema(columns) if columns else reader
        defaults = {"subscribe": subscribe, "startingOffsets": "earliest", "failOnDataLoss": "false"}
        for name, value in (defaults | options).items():
            reader = reader.option(name, str(value))
        return reader.load()

    def write(self, rows: DataFrame, mode: str = "append", every: float = 0.0) -> DataStreamWriter:
        """A writer with name, checkpoint and trigger set, which starts a batch `every` so many seconds at most."""
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        writer = rows.writeStream.queryName(self.pipeline.name).outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(every * 1000)} milliseconds")

    def publish(self, rows: DataFrame, batch: int | str) -> None:
        """Publishes rows with `topic` and `payload` exactly once. Call it inside `foreachBatch`."""
        batch_id = f"{self.query_id}:{batch}"
        rows.write.format("polycast").mode("append").option("at", self.at).option("batchId", batch_id).save()

    @property
    def query_id(self) -> str:
        """Stable for the lifetime of the checkpoint; available once the query has started."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])


def to_topic(prefix: str, topic: str) -> str:
    """The topic of a report about a topic. One that exceeds the length limit is cut and ends in a digest."""
    whole = (prefix + topic).encode()
    if len(whole) <= LIMIT_BYTES:
        return prefix + topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:DIGEST_DIGITS]
    return whole[: LIMIT_BYTES - DIGEST_DIGITS - 1].decode(errors="ignore") + "~" + digest
