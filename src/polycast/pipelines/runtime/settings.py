"""Reads a pipeline's settings from `--set KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_type_hints

from polycast.errors import UsageError
from polycast.model import parse_patterns
from polycast.server.config import convert, nearest

FLAG = "--set"


def read_settings(kind: type, given: Iterable[str]) -> Any:
    """The last value of a key wins."""
    declared, types = {field.name: field for field in fields(kind)}, get_type_hints(kind)
    values = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"{FLAG} {text}: expected KEY=VALUE")
        if key not in declared:
            hint = nearest(key, declared) if declared else "this pipeline has no settings"
            raise UsageError(f"{FLAG}: unknown setting {key}", hint)
        values[key] = convert(key, value, declared[key], types[key], FLAG)
    settings = kind(**values)
    subscribe = getattr(settings, "subscribe", ">")
    try:
        parse_patterns(subscribe)  # the source would check it only after Spark has started
    except UsageError as error:
        raise UsageError(f"{FLAG}: subscribe = {subscribe!r}: {error}", error.hint) from error
    return settings
