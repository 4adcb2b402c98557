"""Pipelines that come with Polycast, by name.

A pipeline's file is imported when it is asked for: Spark takes its time.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

from polycast.errors import UsageError
from polycast.pipelines.base import Pipeline

NAMES = ("archive", "traffic", "quality", "alerts", "deliveries", "replay", "index")


def find(name: str) -> Pipeline:
    check(name)
    found = import_module(f"polycast.pipelines.{name}").PIPELINE
    assert isinstance(found, Pipeline)
    return found


def check(name: str) -> None:
    if name not in NAMES:
        raise UsageError(f"there is no pipeline {name!r}", f"there are {', '.join(NAMES)}")


def summary_of(name: str) -> str:
    """What `PIPELINE` says of itself, read from its file: to import it would take as long as Spark does."""
    tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    [made] = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == Pipeline.__name__]
    given = dict(zip(("name", "summary"), made.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in made.keywords if keyword.arg}
    return str(ast.literal_eval(given["summary"]))
