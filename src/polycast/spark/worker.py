"""The Python processes that Spark keeps for planning, for tasks and for commits.

After each piece of work Spark has them collect garbage, which takes 25 ms with all that is imported: several times
per batch of a stream, on cores that have better things to do. What is there for good is put aside once.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from polycast.log.files.arrow import leave_pandas_out

DAEMON = ("pyspark", "daemon.py")
PLANNERS = "pyspark.sql.worker."
"""The modules that plan and commit: none of them has anything to do with pandas. Tasks may have."""

is_worker = Path(sys.argv[0]).parts[-2:] == DAEMON

if is_worker and sys.argv[1:] and sys.argv[1].startswith(PLANNERS):
    leave_pandas_out()


def freeze_imports() -> None:
    """Excludes everything imported so far from garbage collection, in worker processes only."""
    if is_worker:
        gc.collect()
        gc.freeze()
