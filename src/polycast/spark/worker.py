"""Setup of the Python worker processes that Spark uses for planning, tasks and commits.

Spark runs a garbage collection in the worker after each unit of work. With all modules imported that takes 25 ms,
several times per micro-batch. Freezing the imported objects once makes it cheap.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from polycast.log.files.arrow import leave_pandas_out

DAEMON = ("pyspark", "daemon.py")
PLANNERS = "pyspark.sql.worker."
"""Workers that plan and commit; these never need pandas. Tasks may."""

is_worker = Path(sys.argv[0]).parts[-2:] == DAEMON

if is_worker and sys.argv[1:] and sys.argv[1].startswith(PLANNERS):
    leave_pandas_out()


def freeze_imports() -> None:
    """Excludes everything imported so far from garbage collection, in worker processes only."""
    if is_worker:
        gc.collect()
        gc.freeze()
