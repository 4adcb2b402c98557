from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from polycast.pipelines.runtime.definition import Pipeline

NAME = "describe"
HELP = "Describe a pipeline: what it does, its settings, its output."
EXAMPLE = "polycast pipeline describe archive"


def run(
    name: str = typer.Argument(help="The pipeline."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
) -> None:
    from polycast.pipelines import find

    about = describe(find(name))
    typer.echo(json.dumps(about, ensure_ascii=False) if as_json else "\n".join(_to_lines(about)))


def describe(pipeline: Pipeline) -> dict[str, Any]:
    text = sys.modules[pipeline.start.__module__].__doc__ or pipeline.summary
    return {
        "name": pipeline.name,
        "summary": pipeline.summary,
        "about": cleandoc(text),
        "settings": [_to_row(field) for field in fields(pipeline.settings)],
        "writes": pipeline.writes,
        "checkpoint": f"DIR/checkpoints/{pipeline.name}",
        "example": f"polycast pipeline run {pipeline.name} --once",
    }


def _to_row(field: Field[Any]) -> dict[str, Any]:
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return {
        "key": field.name,
        "default": default,
        "meaning": field.metadata["meaning"],
        "choices": list(field.metadata["choices"]),
    }


def _to_lines(about: dict[str, Any]) -> Iterator[str]:
    yield f"{about['name']}: {about['summary']}\n\n{about['about']}\n"
    if about["settings"]:
        yield "Settings (--set KEY=VALUE):"
    width = max((len(_with_default(row)) for row in about["settings"]), default=0)
    for row in about["settings"]:
        choices = f": {' or '.join(row['choices'])}" if row["choices"] else ""
        yield f"  {_with_default(row):<{width}}  {row['meaning']}{choices}"
    yield ""
    if about["writes"]:
        yield f"Writes to: {about['writes']}"
    yield f"Checkpoint: {about['checkpoint']}"
    yield f"Example: {about['example']}"


def _with_default(row: dict[str, Any]) -> str:
    value = row["default"]
    text = ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value
    return f"{row['key']}={text}"
