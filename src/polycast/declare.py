"""Things that are declared as data, once: what a setting or a counter is called, its unit, and what it means."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(default: Any, meaning: str, *, low: float | None = None, choices: tuple[str, ...] = ()) -> Any:
    """A field with what people need to know about it."""
    metadata = {"meaning": meaning, "low": low, "choices": choices}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def counter(unit: str, meaning: str, *, kind: str = "counter") -> Any:
    """`kind` as Prometheus has it: a counter only rises, a gauge says how it is now."""
    return field(default=0, metadata={"unit": unit, "meaning": meaning, "kind": kind})
