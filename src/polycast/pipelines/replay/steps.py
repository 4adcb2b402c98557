"""Offset ranges of a replay from the lake, planned before it starts.

    checkpoints/replay-ID.steps/000000000000.json      {"first": 0, "next": 100000}

Spark reads these files as a stream, one per batch, and its checkpoint records the position. Steps follow the
offsets, independent of the hour of the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from polycast.log.files.disk import DISK
from polycast.log.files.folder import make_folder

SCHEMA = "first long, next long"
DONE = "_all"
"""Marker file, written last and ignored by Spark. Without it the steps are planned again."""


def to_steps(ranges: Sequence[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """At most `size` offsets per step. Ranges are (first, last), sorted by first."""
    steps: list[tuple[int, int]] = []
    after = 0
    for first, last in ranges:
        after = max(after, first)
        while after <= last:
            steps.append((after, min(after + size, last + 1)))
            after = steps[-1][1]
    return steps


def write_steps(folder: Path, steps: Sequence[tuple[int, int]]) -> None:
    """Does nothing if the steps exist. Spark reads files in order of modification time."""
    if (folder / DONE).exists():
        return
    make_folder(folder, DISK)
    for number, (first, after) in enumerate(steps):
        path = folder / f"{number:012}.json"
        path.write_text(json.dumps({"first": first, "next": after}) + "\n")
        os.utime(path, ns=(0, (number + 1) * 1_000_000_000))
    DISK.replace(folder / DONE, b"")
