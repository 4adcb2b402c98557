"""Converts result rows to values that JSON can encode: bytes as text if they are UTF-8, times in UTC."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

UTC_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Arrow's %S includes fractions of a second."""

Rows = list[tuple[Any, ...]]


def to_rows(batch: pa.RecordBatch, convert: Callable[[Any], Any]) -> Rows:
    columns = [_values(column, convert) for column in batch.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows


def _values(column: pa.Array, convert: Callable[[Any], Any]) -> list[Any]:
    """Integers, strings and booleans need no conversion per value."""
    column = _to_texts(column)
    kind = column.type
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind)
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    return values if plain else [convert(value) for value in values]


def _to_texts(column: pa.Array) -> pa.Array:
    """Converts a column of times, or of bytes that are all UTF-8, at once."""
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return pc.strftime(column, UTC_FORMAT)
    if pa.types.is_binary(column.type):
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.string())
    return column


def to_plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return to_text(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        return {str(to_plain(key)): to_plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    return value


def to_text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(value).decode()}
