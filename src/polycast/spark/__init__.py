"""Reads topics as Spark tables and streams, and publishes rows as messages.

    spark = polycast.spark.session()
    spark.read.format("polycast").option("path", "polycast-data/log").load()

Requires the extra `spark`: `pip install 'polycast[spark]'`.
"""

from importlib.util import find_spec

from polycast.errors import StartError

if find_spec("pyspark") is None:
    raise StartError("pyspark is not installed", "pip install 'polycast[spark]'")

from polycast.spark import worker  # first: it decides whether later imports load pandas
from polycast.spark.error_text import explain
from polycast.spark.publish import publish
from polycast.spark.session import register, session
from polycast.spark.table import table

worker.freeze_imports()

__all__ = ["explain", "publish", "register", "session", "table"]
