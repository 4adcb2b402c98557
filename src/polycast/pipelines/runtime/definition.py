"""What a pipeline is: a name, its settings, and a stream that somebody starts.

What it computes is a pure function from DataFrame to DataFrame in the pipeline's own file, tested without a
stream. Here is what all of them share: where they read, where their checkpoint is, how they publish once only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class Pipeline:
    name: str
    summary: str
    """One line."""
    settings: type
    """A frozen dataclass of `declare.setting` fields, all with a default."""
    start: Callable[[PipelineRun], StreamingQuery]
    finish: Callable[[PipelineRun], list[str]] | None = None
    """After a run with `--once`: writes what that run is for, a report for example, and returns lines to print."""
    writes: str = ""
    """Where results go, for people: folders, topics."""
    publishes: Callable[[Any], bool] = lambda settings: False
    """Whether it needs a broker, with these settings: then a run without one ends before Spark begins."""


@dataclass(frozen=True)
class PipelineRun:
    """One run of a pipeline."""

    spark: SparkSession
    pipeline: Pipeline
    data: Path
    """The data folder: the log is in `log`, checkpoints go to `checkpoints`."""
    at: str
    """The hermod address of the broker that results are published to."""
    settings: Any
    once: bool = False
    rows: dict[int, int] = field(default_factory=dict)
    """By batch: how many rows it had, where the pipeline knows better than Spark."""

    @property
    def checkpoint(self) -> Path:
        return self.data.absolute() / "checkpoints" / self.pipeline.name

    def messages(self, subscribe: str = ">", columns: str = "", **options: object) -> DataFrame:
        """The log as a stream, from its beginning unless `options` say otherwise.

        `columns` are those that are needed, as a schema: "offset long, topic string". Others are not read then.
        """
        reader = self.spark.readStream.format("polycast").option("path", str(self.data.absolute() / "log"))
        reader = reader.schema(columns) if columns else reader
        asked = {"subscribe": subscribe, "startingOffsets": "earliest", "failOnDataLoss": "false"} | options
        for name, value in asked.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def write(self, rows: DataFrame, mode: str = "append", every: str = "") -> DataStreamWriter:
        """With name, checkpoint and trigger in place: what is missing is where to, and `start()`."""
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        writer = rows.writeStream.queryName(self.pipeline.name).outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=every) if every else writer

    def publish(self, rows: DataFrame, batch: int | str) -> None:
        """From within `foreachBatch`: rows with `topic` and `payload` become messages, once only."""
        batch_id = f"{self.query_id}:{batch}"
        rows.write.format("polycast").mode("append").option("at", self.at).option("batchId", batch_id).save()

    @property
    def query_id(self) -> str:
        """It stays the same for as long as the checkpoint is there. Known once the query has begun."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])
