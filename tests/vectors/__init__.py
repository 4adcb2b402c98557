"""Vectors as data; README.md describes the files."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

Row = tuple[str | bytes, ...]
"""An event as in the files: its kind, then its fields as bytes."""


@dataclass(frozen=True)
class InputVector:
    id: str
    role: str
    input: bytes
    events: tuple[Row, ...]
    opening: bool
    unfinished: bool
    limits: dict[str, int]
    settings: dict[str, Any]
    at_end: tuple[Row, ...]
    closing_bytes: bytes
    has_log: bool

    @property
    def closes(self) -> bool:
        return bool(self.events) and self.events[-1][0] == "closed"


@dataclass(frozen=True)
class OutputVector:
    id: str
    encoder: str
    messages: tuple[tuple[bytes, bytes], ...]
    output: bytes
    lossy: int


def to_bytes(text: str) -> bytes:
    return text.encode("latin-1")


def input_vectors() -> list[InputVector]:
    return [_to_input(id_, table) for id_, table in _tables() if "input" in table]


def output_vectors() -> list[OutputVector]:
    return [_to_output(id_, table) for id_, table in _tables() if "output" in table]


def _tables() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for path in sorted(HERE.glob("*/*.toml")):
        for table in tomllib.loads(path.read_text())["vector"]:
            found.append((f"{path.parent.name}/{path.stem}: {table.pop('name')}", table))
    return found


def _to_input(id_: str, table: dict[str, Any]) -> InputVector:
    vector = InputVector(
        id_,
        table.pop("role"),
        to_bytes(table.pop("input")),
        _to_rows(table.pop("events")),
        table.pop("opening", False),
        table.pop("unfinished", False),
        table.pop("limits", {}),
        table.pop("settings", {}),
        _to_rows(table.pop("at_end", [])),
        to_bytes(table.pop("farewell", "")),
        table.pop("has_log", False),
    )
    assert not table, f"{id_}: unknown keys {sorted(table)}"
    return vector


def _to_rows(events: list[list[str]]) -> tuple[Row, ...]:
    return tuple((kind, *map(to_bytes, fields)) for kind, *fields in events)


def _to_output(id_: str, table: dict[str, Any]) -> OutputVector:
    messages = tuple((to_bytes(topic), to_bytes(payload)) for topic, payload in table.pop("messages"))
    vector = OutputVector(
        id_, table.pop("encoder"), messages, to_bytes(table.pop("output")), table.pop("lossy", 0)
    )
    assert not table, f"{id_}: unknown keys {sorted(table)}"
    return vector
