"""Pipelines that come with Polycast, by name. A pipeline's file is imported when it is asked for: Spark takes its time."""

from __future__ import annotations

from importlib import import_module

from polycast.errors import UsageError
from polycast.pipelines.base import Pipeline

NAMES = ("archive", "traffic", "quality", "alerts", "deliveries", "replay", "index")


def find(name: str) -> Pipeline:
    if name not in NAMES:
        raise UsageError(f"there is no pipeline {name!r}", f"there are {', '.join(NAMES)}")
    found = import_module(f"polycast.pipelines.{name}").PIPELINE
    assert isinstance(found, Pipeline)
    return found
