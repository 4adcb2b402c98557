"""The standing pipelines and the SQL service, in one Spark session.

    python -m polycast.pipelines.service --data DIR --hermod ADDRESS --http ADDRESS [--set NAME.KEY=VALUE]...

supervised     restarts a pipeline's query when it fails
backoff        delays between restarts
sql_service    the route `spark/sql`
"""

from __future__ import annotations

NAMES = ("archive", "traffic")
SPARK_UNAVAILABLE = 69
"""Exit code if Spark or Java is missing (EX_UNAVAILABLE); a restart would not help."""
