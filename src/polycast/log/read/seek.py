"""Finds offsets by time or by the sequence of a topic, and rows by offset.

Nothing here reads the whole log: metadata has the times of segments, and snapshots have the sequences of topics,
so that one segment is searched. `find_x` returns the result, `seek_x` is the same as resumable work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import LogDamageError
from polycast.log.files.agreed_first import read_agreed_first
from polycast.log.files.folder import TOPICS, Segment, segments
from polycast.log.files.format import Gap
from polycast.log.files.hot import HotReader
from polycast.log.files.quarantine import read_lost
from polycast.log.files.sealed import SealedReader
from polycast.log.files.snapshot import read_topics
from polycast.log.read.reader import Reader
from polycast.log.read.work import Work, finish
from polycast.log.times import MICROS

ALL_ROWS = 1 << 30


def first_offset(folder: Path) -> int | None:
    """None if the log is empty. Messages lost to damage count, until retention removes the segment behind them.
    In a cluster, the first offset that all nodes agreed on, if it is higher."""
    found = segments(folder)
    if not found:
        return None
    first = found[0].first
    for gap in sorted(read_lost(folder), key=lambda gap: gap.next, reverse=True):
        first = gap.first if gap.next == first else first
    return max(first, read_agreed_first(folder))


def find_time(folder: Path, seconds: float) -> int:
    """The first offset with that time, in seconds since the epoch, or later; past the end if there is none."""
    return finish(seek_time(folder, seconds))


def seek_time(folder: Path, seconds: float) -> Work[int]:
    micros = round(seconds * MICROS)
    requested = pa.scalar(micros, pa.timestamp("us", tz="UTC"))
    found = segments(folder)
    start = yield from _last(found, lambda segment: _begins_before(segment, micros))
    start = max([start, *(_within(segment, micros) for segment in found if segment.first == start)])
    return (yield from _search(folder, start, ["time"], lambda rows: pc.greater_equal(rows["time"], requested)))


def is_removed(folder: Path, micros: int | None = None, sequences: Mapping[str, int] | None = None) -> bool:
    """Whether retention has removed messages from that time on, or from one of these sequences on.

    True if that is unknown, because the first segment is damaged or has no snapshot."""
    found = segments(folder)
    if not found or not found[0].first:
        return False
    if sequences:
        requested = pa.table({"topic": list(sequences), "sequence": list(sequences.values())})
        return not _begins_before_sequences(found[0], requested)
    return micros is not None and not _begins_before(found[0], micros)


def find_sequence(folder: Path, topic: str, sequence: int) -> int:
    """The first offset of the topic with that sequence or a higher one; past the end if there is none."""
    return finish(seek_sequence(folder, topic, sequence))


def seek_sequence(folder: Path, topic: str, sequence: int) -> Work[int]:
    def matches(rows: pa.RecordBatch) -> pa.Array:
        return pc.and_(pc.equal(rows["topic"], topic), pc.greater_equal(rows["sequence"], sequence))

    start = yield from seek_sequences(folder, {topic: sequence})
    return (yield from _search(folder, start, ["topic", "sequence"], matches))


def find_sequences(folder: Path, sequences: Mapping[str, int]) -> int:
    """The beginning of the last segment before which no topic has reached its sequence."""
    return finish(seek_sequences(folder, sequences))


def seek_sequences(folder: Path, sequences: Mapping[str, int]) -> Work[int]:
    requested = pa.table({"topic": list(sequences), "sequence": list(sequences.values())})
    return (yield from _last(segments(folder), lambda segment: _begins_before_sequences(segment, requested)))


def rows_at(
    folder: Path,
    offsets: Sequence[int],
    columns: Sequence[str] | None = None,
    on_skipped: Callable[[Gap], None] = lambda gap: None,
) -> Iterator[pa.RecordBatch]:
    """These rows in the order of offsets. Missing offsets are left out; `on_skipped` gets those lost to damage."""
    requested = sorted(set(offsets))
    names = ["offset", *(name for name in columns if name != "offset")] if columns else None
    reader = Reader(folder, requested[0] if requested else 0, names)
    try:
        while requested:
            reader.seek(requested[0])
            batch = reader.read(requested[-1] + 1, ALL_ROWS)
            _report_damage(reader, requested, on_skipped)
            if batch is None:
                return
            done = bisect_left(requested, reader.offset)
            mask = pc.is_in(batch["offset"], pa.array(requested[:done], pa.int64()))
            found = batch.filter(mask)
            if found.num_rows:
                yield found.select(columns) if columns else found
            requested = requested[done:]
    finally:
        reader.close()


def _report_damage(reader: Reader, requested: list[int], on_skipped: Callable[[Gap], None]) -> None:
    skipped, reader.skipped = reader.skipped, []
    for gap in skipped:
        if gap.damaged and bisect_left(requested, gap.first) < bisect_left(requested, gap.next):
            on_skipped(gap)


# -- which segment ---------------------------------------------------------------------------------------


def _last(found: list[Segment], reached: Callable[[Segment], bool | None]) -> Work[int]:
    """Binary search: the first offset of the last segment for which `reached` is true, or of the first segment.

    Segments with an unknown result are left out: an earlier start only costs time.
    """
    known = list(found)
    low, high = 0, len(known)
    while high - low > 1:
        middle = (low + high) // 2
        result = reached(known[middle])
        yield
        if result is None:
            del known[middle]
            high -= 1
        elif result:
            low = middle
        else:
            high = middle
    return known[low].first if known else 0


def _begins_before(segment: Segment, micros: int) -> bool | None:
    try:
        first = first_time(segment)
    except (OSError, LogDamageError):
        return None
    return None if first is None else first < micros


def _within(segment: Segment, micros: int) -> int:
    """Where the row group begins that may have that time, or the gap before it; if unknown, the segment."""
    try:
        with SealedReader(segment.path) as sealed:
            earlier = (each.next for each in sealed.metadata.row_groups if each.last_time < micros)
            return max(earlier, default=segment.first)
    except (OSError, LogDamageError):
        return segment.first


def first_time(segment: Segment) -> int | None:
    """In microseconds; None without messages. Raises LogDamageError, and OSError if the segment is gone."""
    if segment.sealed:
        with SealedReader(segment.path) as sealed:
            return sealed.metadata.first_time
    hot = HotReader(segment.path)
    try:
        group = next(hot.groups(), None)
    finally:
        hot.close()
    return None if group is None else int(group.batch["time"][0].value)


def _begins_before_sequences(segment: Segment, requested: pa.Table) -> bool | None:
    """Whether no topic was past its sequence when the segment began."""
    try:
        table = read_topics(segment.path.with_suffix(TOPICS))
    except (OSError, LogDamageError):
        return None
    rows = pc.index_in(requested["topic"], value_set=table["topic"].combine_chunks())
    others = pc.max(table.filter(pc.is_null(table["topic"]))["next_sequence"]).as_py()
    reached = pc.fill_null(pc.take(table["next_sequence"], rows), others or 0)
    return bool(pc.all(pc.less_equal(reached, requested["sequence"])).as_py())


def _search(
    folder: Path, start: int, columns: list[str], matches: Callable[[pa.RecordBatch], pa.Array]
) -> Work[int]:
    reader = Reader(folder, start, ["offset", *columns])
    try:
        reported = 0
        while (batch := reader.read(rows=ALL_ROWS)) is not None:
            index = pc.index(matches(batch), True).as_py()
            if index >= 0:
                missing = reader.skipped[reported:] if index == 0 else []  # one of them may be the first
                return missing[0].first if missing else int(batch["offset"][index].as_py())
            reported = len(reader.skipped)
            yield
        return reader.offset
    finally:
        reader.close()
