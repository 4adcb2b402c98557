"""Merges small files of the lake into large ones.

In the current hour, files of similar size are merged once there are enough of them, so that each row is rewritten
a few times only, not once per batch. When the hour is complete, its small files are merged for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow.parquet as pq

from polycast.pipelines.archive.files import StagingWriter
from polycast.pipelines.runtime.lake import STAGING, Lake, LakeFile, StagedFile

FIRST_STEP_BYTES = 1024 * 1024
BATCH_ROWS = 64 * 1024
SUBFOLDER = "merge"
EVERYTHING_BYTES = 2**62


class MergeLimits(NamedTuple):
    target_bytes: int
    """Files below half of this are small."""
    merge_files: int
    """Number of small files in the current hour that starts a merge."""


class Compactor:
    def __init__(self, lake: Lake, sizes: MergeLimits) -> None:
        self._lake = lake
        self._sizes = sizes
        self._due = set(lake.hours())
        self._newest = max(self._due, default="")

    def touch(self, hours: Sequence[str]) -> None:
        self._due.update(hours)
        self._newest = max((self._newest, *hours))

    def run(self, at_most: int | None = None) -> int:
        """The number of merges. `at_most` limits the delay that merging adds to a batch."""
        done = 0
        for hour in sorted(self._due):
            is_complete = hour < self._newest
            while group := next(iter(plan(self._lake.files(hour), is_complete, self._sizes)), None):
                if done == at_most:
                    return done
                merge(self._lake, hour, group)
                done += 1
            if is_complete:
                self._due.discard(hour)
        return done


def plan(files: Sequence[LakeFile], is_complete: bool, sizes: MergeLimits) -> list[list[LakeFile]]:
    """Groups of files to merge. A group is contiguous, so that rows stay in order of offset."""
    small = [file.size < sizes.target_bytes / 2 for file in files]
    steps = [step_of(file.size, sizes.merge_files) for file in files]
    for step in [max(steps, default=0)] if is_complete else sorted(set(steps)):
        fit = [is_small and at <= step for is_small, at in zip(small, steps, strict=True)]
        groups = [
            group
            for run in _runs(files, fit)
            if is_complete or _is_worth_it(run, sizes.merge_files)
            for group in _pack(run, sizes.target_bytes)
            if len(group) > 1
        ]
        if groups:
            return groups
    return []


def _is_worth_it(files: Sequence[LakeFile], merge_files: int) -> bool:
    """Does not rewrite a large file for a few small ones."""
    largest = max(file.size for file in files)
    return len(files) >= merge_files and sum(file.size for file in files) >= 2 * largest


def _runs(files: Sequence[LakeFile], fit: Sequence[bool]) -> list[list[LakeFile]]:
    pairs = groupby(zip(files, fit, strict=True), key=lambda pair: pair[1])
    return [[file for file, _ in run] for fits, run in pairs if fits]


def step_of(size: int, merge_files: int) -> int:
    """The size class of a file. Enough files of one class merge into one of the next."""
    step, limit = 0, FIRST_STEP_BYTES
    while size > limit:
        step, limit = step + 1, limit * merge_files
    return step


def _pack(files: Sequence[LakeFile], target_bytes: int) -> list[list[LakeFile]]:
    groups: list[list[LakeFile]] = []
    size = target_bytes
    for file in files:
        if size + file.size > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def merge(lake: Lake, hour: str, group: Sequence[LakeFile]) -> StagedFile:
    files = StagingWriter(lake.folder, f"{STAGING}/{SUBFOLDER}", EVERYTHING_BYTES)
    for file in group:
        with pq.ParquetFile(lake.folder / file.name) as opened:
            for batch in opened.iter_batches(BATCH_ROWS):
                files.add(batch)
    [merged] = files.close()
    assert merged.hour == hour
    lake.merge(merged, group)
    return merged
