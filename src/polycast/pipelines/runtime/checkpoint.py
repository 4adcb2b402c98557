"""Offsets in a query's checkpoint, read without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCES_LINE = 2
"""The first line of an `offsets` file that describes a source; Spark's own metadata precedes it."""


def read_offset(reported: Any) -> int:
    """Spark encodes an offset as JSON, sometimes as a string of JSON. 0: none yet."""
    if isinstance(reported, str) and reported:
        reported = json.loads(reported)
    return int(reported["offset"]) if isinstance(reported, Mapping) and "offset" in reported else 0


def committed_offset(checkpoint: Path) -> int:
    """The offset after the last committed batch; 0 before the first commit."""
    batches = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    return batch_end(checkpoint, max(batches)) if batches else 0


def batch_end(checkpoint: Path, batch: int) -> int:
    """The offset after a batch. Spark writes it before the batch starts."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    offsets = [read_offset(line) for line in lines[SOURCES_LINE:] if line.startswith("{")]
    return min(offsets, default=0)
