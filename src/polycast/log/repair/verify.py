"""Verification: reads every byte of the log and checks it.

Hot segments: the checksum of each group. Sealed segments: page checksums, and the digest of each column of each
row group. All segments: the chain of checksums across files up to the last clean stop, and offsets without
unrecorded gaps. Retention removes the oldest segments; that is not damage. Recorded gaps, and an unfinished group
at the end after a crash, are notes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import LogDamageError
from polycast.log.files.damage import Damage, walk
from polycast.log.files.folder import BATCHES, SEALED, TOPICS, Segment, first_offset_of, segment_size, segments
from polycast.log.files.format import NOTHING_BEFORE, Gap
from polycast.log.files.hot import Group, HotReader
from polycast.log.files.quarantine import read_lost
from polycast.log.files.sealed import SealedReader, content_of
from polycast.log.files.snapshot import read_snapshot
from polycast.log.files.state import NAME, LogState, read_state
from polycast.log.read.gaps import covering


class LogFinding(NamedTuple):
    """Damage, or a note."""

    what: str
    first: int | None = None
    """The first affected offset."""
    next: int | None = None
    note: bool = False


class VerifyProgress(NamedTuple):
    """Bytes checked so far, all bytes, and valid rows."""

    done: int
    total: int
    rows: int


Report = LogFinding | VerifyProgress


def verify(folder: Path, running: bool = False) -> Iterator[Report]:
    """`running`: whether a broker writes to the log."""
    return _Verification(folder, running).run()


class _Verification:
    def __init__(self, folder: Path, running: bool) -> None:
        self._folder = folder
        self._running = running
        self._state, self._state_damage = _read_state(folder)
        self._segments = segments(folder)
        self._lost = read_lost(folder)
        self._gaps = set(self._lost)
        """All recorded gaps."""
        self._total = sum(map(segment_size, self._segments))
        self._done = self._rows = 0
        self._expected: int | None = None
        """The next offset; None if unknown."""
        self._checksum: str | None = NOTHING_BEFORE if self._segments and not self._segments[0].first else None
        """The checksum of the group before; None if unknown."""

    def run(self) -> Iterator[Report]:
        for segment in self._segments:
            size = segment_size(segment)
            try:
                yield from self._check(segment)
            except LogDamageError as error:
                yield LogFinding(str(error), segment.first)
                self._expected = self._checksum = None
            self._done += size
            yield self._progress()
        for gap in sorted(self._gaps, key=lambda gap: (gap.first, gap.next)):
            yield LogFinding(f"gap: {gap.reason}", gap.first, gap.next, note=True)
        yield from self._check_snapshots()
        yield from self._check_state()

    def _progress(self, done: int = 0) -> VerifyProgress:
        return VerifyProgress(self._done + done, self._total, self._rows)

    def _check(self, segment: Segment) -> Iterator[Report]:
        """A segment may be sealed or removed meanwhile."""
        try:
            if not segment.sealed:
                with contextlib.suppress(FileNotFoundError):
                    yield from self._check_hot(HotReader(segment.path), segment)
                    return
            with SealedReader(segment.path.with_suffix(SEALED)) as reader:
                yield from self._check_sealed(reader)
        except FileNotFoundError:
            self._expected = self._checksum = None

    # -- hot segments ------------------------------------------------------------------------------------

    def _check_hot(self, reader: HotReader, segment: Segment) -> Iterator[Report]:
        died = not self._running and not (self._state and self._state.clean)
        may_be_torn = died and segment == self._segments[-1]
        try:
            for found in walk(reader, segment.first):
                if isinstance(found, Damage):
                    yield LogFinding(found.reason, found.first, found.next, note=may_be_torn and found.torn)
                    self._expected, self._checksum = found.next, None
                    may_be_torn = may_be_torn and not found.torn
                else:
                    yield from self._check_group(segment, found)
                    yield self._progress(found.position)
            if may_be_torn and reader.has_trailing_bytes():
                text = f"{segment.path}, byte {reader.position:,}: the last group is unfinished"
                yield LogFinding(text, self._expected, note=True)
        finally:
            reader.close()

    def _check_group(self, segment: Segment, group: Group) -> Iterator[LogFinding]:
        header, offsets = group.header, group.batch["offset"]
        where = f"{segment.path}, byte {group.position:,}"
        self._rows += header.count
        if holes_in(offsets) or offsets[0].as_py() != header.first or len(offsets) != header.count:
            yield LogFinding(f"{where}: the rows do not match the header of the group", header.first, header.next)
        gaps = [header.gap] if header.gap else []
        yield from self._follow(where, header.first, header.next, header.previous, header.checksum, gaps)

    # -- sealed segments ---------------------------------------------------------------------------------

    def _check_sealed(self, reader: SealedReader) -> Iterator[Report]:
        metadata = reader.metadata
        yield from self._follow(
            str(reader.path), metadata.first, metadata.next, metadata.previous, metadata.checksum, metadata.gaps
        )
        if metadata.content != content_of(metadata.row_groups):
            yield LogFinding(f"{reader.path}: the digest of its content is wrong", metadata.first, metadata.next)
        expected = metadata.first
        for number, group in enumerate(metadata.row_groups):
            try:
                offsets = reader.read(number)["offset"]
            except LogDamageError as error:
                yield LogFinding(str(error), group.first, group.next)
            else:
                self._rows += group.count
                for hole in [Gap(expected, group.first, ""), *holes_in(offsets)]:
                    if not _covers(metadata.gaps, hole.first, hole.next):
                        text = f"{reader.path}, row group {number}: offsets are missing, and no gap is recorded"
                        yield LogFinding(text, hole.first, hole.next)
            expected = group.next
            yield self._progress(segment_size(Segment(0, reader.path)) * (number + 1) // len(metadata.row_groups))

    # -- between groups ----------------------------------------------------------------------------------

    def _follow(
        self, where: str, first: int, after: int, previous: str, checksum: str, gaps: list[Gap]
    ) -> Iterator[LogFinding]:
        expected = first if self._expected is None else self._expected
        self._gaps.update(gaps)
        if _covers(self._lost, expected, first) and expected < first:
            self._checksum = None
        elif first < expected or not _covers(gaps, expected, first):
            yield LogFinding(
                f"{where}: offset {expected:,} should be next, and no gap is recorded", expected, first
            )
        if self._checksum is not None and previous != self._checksum:
            yield LogFinding(
                f"{where}: the chain is broken: this group does not follow the group before it", first
            )
        self._expected, self._checksum = after, checksum

    # -- the rest ----------------------------------------------------------------------------------------

    def _check_snapshots(self) -> Iterator[LogFinding]:
        for path in sorted(self._folder.glob(f"*{TOPICS}")):
            offset = first_offset_of(path)
            if offset is not None and read_snapshot(self._folder, offset) is None and path.exists():
                yield LogFinding(f"{path}, or its {BATCHES}: the snapshot cannot be read", offset)

    def _check_state(self) -> Iterator[LogFinding]:
        if self._state_damage:
            yield LogFinding(self._state_damage)
        if self._running or not self._state or not self._state.clean or self._checksum is None:
            return
        if self._checksum != self._state.checksum:
            text = f"{self._folder}: the log ends before offset {self._state.next:,}, where the last stop left it"
            yield LogFinding(text, self._expected, self._state.next)


def _read_state(folder: Path) -> tuple[LogState | None, str]:
    """The state, and the error if it cannot be read."""
    try:
        state = read_state(folder)
    except LogDamageError as error:
        return None, str(error)
    return state, f"{folder / NAME}: it cannot be read" if state is None and (folder / NAME).exists() else ""


def _covers(gaps: list[Gap], first: int, after: int) -> bool:
    """Whether recorded gaps cover these offsets."""
    return first == after or covering(gaps, first, after) is not None


def holes_in(offsets: pa.Array) -> list[Gap]:
    """Ranges of missing offsets."""
    before, after = offsets.slice(0, len(offsets) - 1), offsets.slice(1)
    indexes = pc.indices_nonzero(pc.not_equal(pc.subtract(after, before), 1))
    return [Gap(before[i].as_py() + 1, after[i].as_py(), "") for i in indexes.to_pylist()]
