"""Copies the topic `in` to the topic `out`, at the nodes of a cluster, until its input is closed.

    python -m spark.cluster_echo MASTER CHECKPOINT ADDRESSES

Prints `batch NUMBER` after a batch with rows, once a second.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F  # noqa: N812 -- the usual alias

from polycast.spark import session

OFFSETS_A_BATCH = 4000
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": 1,
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def echo(master: str, checkpoint: str, at: str) -> None:
    spark = session(master, settings=SETTINGS)
    rows = (
        spark.readStream.format("polycast")
        .option("at", at)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_A_BATCH)
        .option("minPartitions", 3)
        .load()
        .select(F.lit("out").alias("topic"), "payload")
    )
    query = rows.writeStream.format("polycast").option("at", at).option("checkpointLocation", checkpoint).start()
    seen = -1
    while not query.awaitTermination(1):
        progress = query.lastProgress
        if progress and progress["batchId"] > seen and progress["numInputRows"]:
            seen = progress["batchId"]
            sys.stdout.write(f"batch {seen}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    echo(*sys.argv[1:])
