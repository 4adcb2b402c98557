"""Messages of the log as lines (offset, time, topic, sequence, payload) or JSON objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from polycast.text import printable

if TYPE_CHECKING:
    import pyarrow as pa


def to_lines(batch: pa.RecordBatch, as_json: bool) -> bytes:
    write = _to_json if as_json else _to_line
    return "".join(map(write, _rows(batch))).encode()


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = {name: batch[name].to_pylist() for name in batch.schema.names}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _to_line(row: dict[str, Any]) -> str:
    when = row["time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    payload = printable(row["payload"].decode(errors="backslashreplace"))
    return f"{row['offset']} {when} {printable(row['topic'])} {row['sequence']} {payload}\n"


def to_json_payload(payload: bytes) -> str | dict[str, str]:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(payload).decode()}


def _to_json(row: dict[str, Any]) -> str:
    shown = {**row, "time": row["time"].isoformat(), "payload": to_json_payload(row["payload"])}
    return json.dumps(shown, ensure_ascii=False) + "\n"
