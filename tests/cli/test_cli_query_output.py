"""Output of query results: tables, columns, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from polycast.cli import query_output

MOMENT = datetime(2026, 11, 15, 20, 0, 0, 5, tzinfo=UTC)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "topic": (pa.string(), ["orders", 'a "b",\n\x1b[31m', None]),
    "n": (pa.int64(), [5, 12345, None]),
    "payload": (pa.binary(), [b"text", b"\xff\x00", b""]),
    "time": (pa.timestamp("us", tz="UTC"), [MOMENT, None, MOMENT]),
    "rate": (pa.float64(), [1.5, float("nan"), 2.0]),
    "price": (pa.decimal128(10, 2), [Decimal("1.50"), None, Decimal("12.00")]),
    "map": (pa.map_(pa.string(), pa.binary()), [[("k", b"\xff")], [], None]),
    "day": (pa.date32(), [date(2026, 1, 2), None, None]),
}
NAMES = list(COLUMNS)


def batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for kind, values in COLUMNS.values()], NAMES)


def test_json(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    query_output.show(NAMES, [batch(), batch()], "json")
    rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert rows[:3] == rows[3:]
    assert rows[0] == {
        "topic": "orders", "n": 5, "payload": "text", "time": "2026-11-15T20:00:00.000005Z", "rate": 1.5,
        "price": 1.5, "map": {"k": {"$base64": "/w=="}}, "day": "2026-01-02",
    }  # fmt: skip
    assert (rows[1]["payload"], rows[1]["rate"], rows[1]["time"]) == ({"$base64": "/wA="}, None, None)


def test_csv(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    query_output.show(NAMES, [batch()], "csv")
    rows = list(csv.DictReader(io.StringIO(capsysbinary.readouterr().out.decode(), newline="")))
    assert [row["topic"] for row in rows] == ["orders", 'a "b",\n\x1b[31m', ""]
    assert [row["payload"] for row in rows] == ["text", "/wA=", ""]
    assert rows[0]["map"] == '{"k":{"$base64":"/w=="}}'


def test_columns_in_a_pipe(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    many = pa.RecordBatch.from_pydict({"name": ["x" * 100, "y"] * 1500, "n": [1, 22] * 1500})
    query_output.show(["name", "n"], [many], "")
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 3001
    assert lines[0] == "name" + " " * 56 + "   n"
    assert lines[1] == "x" * 100 + "   1"
    assert lines[3000] == "y" + " " * 59 + "  22"


def test_control_characters_of_a_cell_are_escaped(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    query_output.show(NAMES, [batch()], "")
    out = capsysbinary.readouterr().out.decode()
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4
    assert "0xff00" in out


def test_a_table_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = pa.RecordBatch.from_pydict({"payload": [b"x" * 500, b"[bold]"], "number": [1, 1_000_000]})
    query_output.show(["payload", "number"], [rows], "")
    shown = capsys.readouterr()
    head, first, second = shown.out.splitlines()
    assert head.split() == ["payload", "number"]
    assert "…" in first and len(first) == 60 and first.endswith("      1")
    assert second.split() == ["[bold]", "1000000"]
    assert shown.err == "2 rows\n"


def test_no_rows(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for encoder, expected in (("", "a  b\n"), ("csv", "a,b\n"), ("json", "")):
        query_output.show(["a", "b"], [], encoder)
        assert capsysbinary.readouterr().out.decode() == expected
