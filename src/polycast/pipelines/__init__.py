"""Pipelines that come with Polycast, by name.

A pipeline's file is imported when it is asked for: Spark takes its time.
"""

from __future__ import annotations

from importlib import import_module

from polycast.errors import UsageError
from polycast.pipelines.runtime.definition import Pipeline

SUMMARIES = {
    "archive": "topics to a lake of Parquet files, by date and hour, each row once",
    "traffic": "messages, bytes, sizes, sources and delay, per topic and dialect, in windows of time",
    "quality": "gaps, repeats, broken JSON and changing fields of each topic",
    "alerts": "topics whose rate is extraordinary: surge, drop, silence",
    "deliveries": "who should have heard what: deliveries by topic, and topics that nobody hears",
    "replay": "messages once more, from the log or the lake, under a prefix, at any speed",
    "index": "filters over payloads that let `polycast find` pass over most of the log",
}
"""One line each."""
NAMES = tuple(SUMMARIES)


def find(name: str) -> Pipeline:
    check(name)
    found = import_module(f"polycast.pipelines.{name}.pipeline").PIPELINE
    assert isinstance(found, Pipeline)
    return found


def check(name: str) -> None:
    if name not in NAMES:
        raise UsageError(f"there is no pipeline {name!r}", f"there are {', '.join(NAMES)}")
