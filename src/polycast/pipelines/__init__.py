"""The built-in pipelines, by name.

`find` imports a pipeline on demand, because importing PySpark takes time.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from polycast.errors import UsageError
from polycast.pipelines.runtime.definition import Pipeline

SUMMARIES = {
    "archive": "archives topics to Parquet files by date and hour, exactly once",
    "traffic": "counts messages, bytes, payload sizes, sources and delay per topic, dialect and time window",
    "quality": "finds sequence gaps, duplicates, invalid JSON and schema changes per topic",
    "alerts": "detects topics with an unusual message rate: surge, drop, silence",
    "deliveries": "counts deliveries per topic, and finds topics without subscribers",
    "replay": "publishes messages again from the log or the lake, under a prefix, at any speed",
    "index": "indexes payloads, so that `polycast find` skips most of the log",
}
"""One line each."""
NAMES = tuple(SUMMARIES)


def find(name: str) -> Pipeline:
    check(name)
    found = import_module(f"polycast.pipelines.{name}.pipeline").PIPELINE
    assert isinstance(found, Pipeline)
    return replace(found, summary=SUMMARIES[name])


def check(name: str) -> None:
    if name not in NAMES:
        raise UsageError(f"unknown pipeline {name!r}", f"pipelines: {', '.join(NAMES)}")
