"""Rows of the log by request: many patterns take many steps of work."""

from __future__ import annotations

import pyarrow as pa

from polycast.log.read.masks import matching
from polycast.log.read.work import finish
from polycast.model import parse_pattern
from polycast.server.api.log_rows import PATTERNS_PER_STEP, _matching


def test_many_patterns_are_many_steps_of_work() -> None:
    batch = pa.record_batch({"topic": [f"t.{number}" for number in range(50)]})
    patterns = [parse_pattern(f"~.{number}") for number in range(10, 10 + 10 * PATTERNS_PER_STEP)]
    assert sum(1 for _ in _matching(batch, patterns)) == 10
    assert finish(_matching(batch, patterns)).equals(matching(batch, patterns))
