"""Copies all messages of a broker to topics under `out/` and to a lake, until it is killed.

    python -m spark.carrier FOLDER ADDRESS

Prints `batch NAME NUMBER` after each batch, and `again NAME REASON` when it restarts a failed query.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual alias
from pyspark.sql.streaming.query import StreamingQuery

from polycast.pipelines import find
from polycast.pipelines.runtime.definition import PipelineRun
from polycast.spark import session
from polycast.spark.error_text import unwrap

OFFSETS_A_BATCH = 20_000


def start_echo(spark: SparkSession, folder: Path, at: str) -> StreamingQuery:
    rows = (
        spark.readStream.format("polycast")
        .option("path", str(folder / "data"))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_A_BATCH)
        .option("minPartitions", 2)
        .load()
        .where("topic not like 'out/%'")
        .select(F.concat(F.lit("out/"), "topic").alias("topic"), "payload")
    )
    writer = rows.writeStream.format("polycast").option("at", at).queryName("echo")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def start_archive(spark: SparkSession, folder: Path, at: str) -> StreamingQuery:
    pipeline = find("archive")
    return pipeline.start(PipelineRun(spark, pipeline, folder / "data", at, pipeline.settings()))


STARTS = {"echo": start_echo, "archive": start_archive}


def carry(folder: Path, at: str) -> None:
    spark = session("local[2,3]")
    queries = {name: start(spark, folder, at) for name, start in STARTS.items()}
    batches = dict.fromkeys(STARTS, -1)
    while True:
        for name, query in queries.items():
            if not query.isActive:
                error = query.exception()
                write_line("again", name, unwrap(error) if error else "ended")
                sys.stderr.write(f"{error}\n")
                queries[name] = STARTS[name](spark, folder, at)
            elif (progress := query.lastProgress) and progress["batchId"] != batches[name]:
                batches[name] = progress["batchId"]
                write_line("batch", name, batches[name])
        time.sleep(0.05)


def write_line(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    carry(Path(sys.argv[1]), sys.argv[2])
