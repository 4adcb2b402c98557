"""Patterns applied to columns, with the semantics of `polycast.model`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from polycast.model import RESERVED_PREFIX, Contains, Everything, Exact, Pattern, Prefix


def matching(batch: pa.RecordBatch, patterns: Sequence[Pattern]) -> pa.RecordBatch:
    """The rows whose topic matches at least one of the patterns. The batch itself if all rows match."""
    mask = pa.scalar(False)
    for pattern in patterns:
        mask = pc.or_(mask, mask_of(batch["topic"], pattern))
    if not patterns:
        return batch.slice(0, 0)
    return batch if pc.all(mask).as_py() else batch.filter(mask)


def mask_of(topics: pa.Array, pattern: Pattern) -> pa.BooleanArray:
    match pattern:
        case Exact(value):
            return pc.equal(topics, value)
        case Everything():
            return pc.invert(pc.starts_with(topics, RESERVED_PREFIX))
        case Prefix(value):
            found = pc.starts_with(topics, value)
        case Contains(value):
            found = pc.match_substring(topics, value)
    return found if value.startswith(RESERVED_PREFIX) else pc.and_(found, mask_of(topics, Everything()))
