"""Sources of rows: a segment, hot or sealed, or an unreadable one.

All sources have one interface. A source returns rows until it has no more at present; a hot segment may have more
later. Unreadable rows raise LogDamageError, and `skip` continues behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from polycast.errors import LogDamageError
from polycast.log.files.folder import Segment
from polycast.log.files.format import Gap
from polycast.log.files.hot import Group, GroupPosition, HotReader
from polycast.log.files.sealed import SealedReader

GATHER_ROWS = 8192
GATHER_BYTES = 1024 * 1024
"""Small groups are joined up to this size, so that a log of single messages is read fast, too."""


class Source(Protocol):
    segment: Segment
    next: int
    """The offset after the rows that were read or skipped."""
    gaps: list[Gap]
    """Recorded gaps that were read."""

    def read(self, offset: int) -> pa.RecordBatch | None:
        """The next rows, possibly with rows before `offset`. None if there are none at present."""

    def skip(self) -> bool:
        """Skips damage, or zeros in place of a group. False if no rows follow."""

    def close(self) -> None: ...


def open_source(
    segment: Segment, columns: Sequence[str] | None = None, position: GroupPosition | None = None
) -> Source:
    """Raises OSError if the file is gone. Reading starts at `position`."""
    try:
        return SealedSource(segment, columns) if segment.sealed else HotSource(segment, columns, position)
    except LogDamageError as error:
        return UnreadableSource(segment, str(error))


class HotSource:
    def __init__(
        self, segment: Segment, columns: Sequence[str] | None, position: GroupPosition | None = None
    ) -> None:
        self.segment = segment
        self.next = segment.first
        self.gaps: list[Gap] = []
        self._columns = list(columns) if columns else None
        self._reader = HotReader(segment.path)
        if position and self._reader.begins_at(position.byte, position.offset):
            self._reader.position, self.next = position.byte, position.offset
        self._groups: Iterator[Group] | None = None
        self._ahead: Group | None = None

    def read(self, offset: int) -> pa.RecordBatch | None:
        parts: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < GATHER_ROWS and size < GATHER_BYTES:
            group = self._take(offset, bool(parts))
            if group is None:
                break
            parts.append(group.batch.select(self._columns) if self._columns else group.batch)
            rows, size = rows + group.header.count, size + group.header.size
        if not parts:
            return None
        joined = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return joined.replace_schema_metadata()

    def _take(self, offset: int, following: bool) -> Group | None:
        """The next group with a row at the offset or later.

        `following`: only if no gap is before it, and if it is small enough to be joined with others.
        """
        group = self._ahead
        while group is None or group.header.next <= offset:
            group = self._pull(offset, following)
            if group is None:
                return None
        if following and (group.header.first != self.next or group.header.size > GATHER_BYTES):
            self._ahead = group
            return None
        self._ahead = None
        if group.header.gap:
            self.gaps.append(group.header.gap)
        self.next = group.header.next
        return group

    def _pull(self, offset: int, following: bool) -> Group | None:
        if self._groups is None:
            if self._reader.ends_at(self._reader.position):
                return None
            self._groups = self._reader.groups(skip_to=offset)
        try:
            group = next(self._groups, None)
        except LogDamageError:
            self._groups = None
            if following:
                return None  # return the valid rows first; the next read meets the damage again
            raise
        if group is None:
            self._groups = None
        return group

    def skip(self) -> bool:
        self._groups = self._ahead = None
        header = self._reader.find_group(self.next)
        if header is None:
            return False
        self.next = header.first
        return True

    def close(self) -> None:
        self._reader.close()


class SealedSource:
    """Chooses row groups by the verified metadata of the segment, not by Parquet statistics."""

    def __init__(self, segment: Segment, columns: Sequence[str] | None) -> None:
        self.segment = segment
        self.next = segment.first
        self._reader = SealedReader(segment.path)
        self.gaps = self._reader.metadata.gaps
        self._columns = columns
        self._number = 0

    def read(self, offset: int) -> pa.RecordBatch | None:
        row_groups = self._reader.metadata.row_groups
        while self._number < len(row_groups) and row_groups[self._number].next <= offset:
            self.skip()
        if self._number == len(row_groups):
            return None
        batch = self._reader.read(self._number, self._columns)
        self.skip()
        return batch

    def skip(self) -> bool:
        row_groups = self._reader.metadata.row_groups
        if self._number == len(row_groups):
            return False
        self.next = row_groups[self._number].next
        self._number += 1
        return True

    def close(self) -> None:
        self._reader.close()


class UnreadableSource:
    def __init__(self, segment: Segment, reason: str) -> None:
        self.segment = segment
        self.next = segment.first
        self.gaps: list[Gap] = []
        self._reason = reason

    def read(self, offset: int) -> pa.RecordBatch | None:
        raise LogDamageError(self._reason)

    def skip(self) -> bool:
        return False

    def close(self) -> None:
        pass
