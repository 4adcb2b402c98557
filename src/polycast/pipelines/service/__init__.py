"""The pipelines that run all the time, in one session of Spark, and SQL for whoever asks the broker for it.

python -m polycast.pipelines.service --data DIR --hermod ADDRESS --http ADDRESS [--set NAME.KEY=VALUE]...

rest        how long to wait before trying again
keeping     a query that is started again when it fails
answering   the route `spark/sql`
"""

from __future__ import annotations

NAMES = ("archive", "traffic")
SPARK_UNAVAILABLE = 69
"""The exit code where Spark or Java is missing (EX_UNAVAILABLE): to try again would not help."""
