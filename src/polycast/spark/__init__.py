"""Topics as tables and streams in Spark, and results as messages again.

    spark = polycast.spark.session()
    spark.read.format("polycast").option("path", "polycast-data/log").load()

This needs the extra `spark`: `pip install 'polycast[spark]'`.
"""

from importlib.util import find_spec

from polycast.errors import StartError

if find_spec("pyspark") is None:
    raise StartError("there is no Spark here", "pip install 'polycast[spark]' brings it")

from polycast.spark import worker  # first: it decides what the others import
from polycast.spark.error_text import explain
from polycast.spark.session import register, session
from polycast.spark.table import table

worker.freeze_imports()

__all__ = ["explain", "register", "session", "table"]
