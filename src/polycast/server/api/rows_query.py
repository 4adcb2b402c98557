"""A request for rows of the log, and the query that it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, field

from polycast.errors import UsageError
from polycast.log.files.format import SCHEMA
from polycast.model import Pattern, parse_pattern

BYTES_AT_MOST = 8 * 1024 * 1024
COLUMNS = len(SCHEMA.names)
PATTERNS_AT_MOST = 10_000
LARGEST = 2**63 - 1
NAME_SHOWN = 40
"""Characters of an unknown name in an error."""

Offset = Annotated[int, Meta(ge=0, le=LARGEST)]


class RowsRequest(Struct, forbid_unknown_fields=True):
    """The body of `polycast/rows`."""

    from_: Offset = field(name="from")
    to: Offset
    columns: Annotated[list[str], Meta(min_length=1, max_length=len(SCHEMA.names))] = field(
        default_factory=lambda: list(SCHEMA.names)
    )
    patterns: Annotated[list[str], Meta(max_length=PATTERNS_AT_MOST)] | None = None
    bytes: Annotated[int, Meta(ge=1, le=BYTES_AT_MOST)] = BYTES_AT_MOST
    row_groups: bool = False


class RowsQuery(Struct, frozen=True):
    first: int
    next: int
    columns: Sequence[str]
    patterns: list[Pattern] | None
    bytes: int
    row_group_bytes: int
    """The largest row group that is sent as it is in the file."""


def to_query(request: RowsRequest, queue_bytes: int) -> RowsQuery:
    """Raises UsageError for an invalid request. Rows take half of the requester's queue, a row group all of it."""
    unknown = [name for name in request.columns if name not in SCHEMA.names]
    if unknown:
        raise UsageError(
            f"there is no column {unknown[0][:NAME_SHOWN]!r}, the columns are {', '.join(SCHEMA.names)}"
        )
    if len(set(request.columns)) < len(request.columns):
        raise UsageError(f"a column is there twice in {', '.join(request.columns)}")
    patterns = None if request.patterns is None else to_patterns(request.patterns)
    most = min(request.bytes, queue_bytes // 2)
    row_group_bytes = queue_bytes if request.row_groups else 0
    return RowsQuery(request.from_, request.to, request.columns, patterns, most, row_group_bytes)


def to_patterns(texts: Sequence[str]) -> list[Pattern]:
    return [parse_pattern(text) for text in texts]
