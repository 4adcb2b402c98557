"""Polycast: a columnar message broker."""

from importlib import import_module
from typing import Any

from polycast import version

__version__ = version.VERSION


def __getattr__(name: str) -> Any:
    """Imports `polycast.spark` on first use: Spark is optional."""
    if name == "spark":
        return import_module("polycast.spark")
    raise AttributeError(f"module 'polycast' has no attribute {name!r}")
