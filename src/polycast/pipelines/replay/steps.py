"""What a replay of the lake does, step by step, decided before the first: offsets from one to another.

    checkpoints/replay-ID.steps/000000000000.json      {"first": 0, "next": 100000}

Spark takes these files as a stream, one in each batch, and remembers how far it came. Steps go by offset, whatever
hour's files the rows are in.
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
"""A file that is written last, and that Spark does not see: without it the steps are decided anew."""


def to_steps(ranges: Sequence[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """So many offsets in each at most. Ranges are from first to last, and come by their first."""
    steps: list[tuple[int, int]] = []
    begin = 0
    for first, last in ranges:
        begin = max(begin, first)
        while begin <= last:
            steps.append((begin, min(begin + size, last + 1)))
            begin = steps[-1][1]
    return steps


def write_steps(folder: Path, steps: Sequence[tuple[int, int]]) -> None:
    """Once. Spark orders files by their time."""
    if (folder / DONE).exists():
        return
    make_folder(folder, DISK)
    for number, (first, after) in enumerate(steps):
        path = folder / f"{number:012}.json"
        path.write_text(json.dumps({"first": first, "next": after}) + "\n")
        os.utime(path, ns=(0, (number + 1) * 1_000_000_000))
    DISK.replace(folder / DONE, b"")
