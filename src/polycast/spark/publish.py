"""Publishes the micro-batches of a stream from `foreachBatch`, each exactly once.

Spark supports the output mode `update` in sinks of its own, and in none that is written in Python. `foreachBatch`
works in every output mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polycast.spark.sink import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def publish(at: str, **options: str) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch`; `options` are those of the sink.

    df.writeStream.outputMode("update").foreachBatch(polycast.spark.publish("tcp://127.0.0.1:7878"))
    """

    def put(rows: DataFrame, batch: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        writer = rows.write.format("polycast").mode("append").options(**options, at=at)
        writer.option("batchId", f"{query}:{batch}").save()

    return put
