"""Logs of messages with chosen times, sizes and sources."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from log.log_builder import BEGAN, SECOND, LogBuilder
from polycast.log.files.format import SCHEMA

Row = dict[str, Any]


class Timed(LogBuilder):
    def add_rows(self, rows: list[Row]) -> None:
        self.make_from = rows
        self.segment(len(rows))

    def make(self, count: int, payload: bytes | None = None, topics: Any = ()) -> pa.RecordBatch:
        rows = [
            {"offset": self.next + n, "sequence": n, "dialect": "hermod", "format": "bytes", "source": "s"} | row
            for n, row in enumerate(self.make_from)
        ]
        self.rows += rows
        return pa.RecordBatch.from_pylist(rows, SCHEMA)


def sent(count: int, seed: int = 1) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "topic": chance.choice("ab"),
            "dialect": chance.choice(["hermod", "ubre"]),
            "source": f"source {chance.randrange(5)}",
            "time": BEGAN + n * SECOND,
            "payload": bytes(chance.choice([5, 10, 20, 100])),
        }
        for n in range(count)
    ]
