"""Where in the log something is, by its time or by its topic's sequence; and rows by their offsets.

None of this reads the whole log: segments tell their times, and snapshots what each topic had come to, so that
there is one segment to look into. `find_x` returns what it found, `seek_x` is the same as work that can pause.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from polycast.errors import LogDamageError
from polycast.log.files.folder import TOPICS, Segment, segments
from polycast.log.files.hot import HotReader
from polycast.log.files.sealed import SealedReader
from polycast.log.files.snapshot import read_topics
from polycast.log.read.reader import Reader
from polycast.log.read.work import Work, finish
from polycast.log.times import MICROS

ALL_ROWS = 1 << 30


def first_offset(folder: Path) -> int | None:
    """None if there is nothing."""
    found = segments(folder)
    return found[0].first if found else None


def find_time(folder: Path, seconds: float) -> int:
    """The first offset whose time is that, since the epoch, or later; past the end if there is none."""
    return finish(seek_time(folder, seconds))


def seek_time(folder: Path, seconds: float) -> Work[int]:
    micros = round(seconds * MICROS)
    wanted = pa.scalar(micros, pa.timestamp("us", tz="UTC"))
    found = segments(folder)
    start = yield from _last(found, lambda segment: _begins_before(segment, micros))
    start = max([start, *(_within(segment, micros) for segment in found if segment.first == start)])
    return (yield from _search(folder, start, ["time"], lambda rows: pc.greater_equal(rows["time"], wanted)))


def find_sequence(folder: Path, topic: str, sequence: int) -> int:
    """The first offset at which the topic has that sequence or a higher one; past the end if there is none."""
    return finish(seek_sequence(folder, topic, sequence))


def seek_sequence(folder: Path, topic: str, sequence: int) -> Work[int]:
    def matches(rows: pa.RecordBatch) -> pa.Array:
        return pc.and_(pc.equal(rows["topic"], topic), pc.greater_equal(rows["sequence"], sequence))

    start = yield from seek_sequences(folder, {topic: sequence})
    return (yield from _search(folder, start, ["topic", "sequence"], matches))


def find_sequences(folder: Path, sequences: Mapping[str, int]) -> int:
    """An offset before which no topic has come to its sequence: where a segment begins, as late as possible."""
    return finish(seek_sequences(folder, sequences))


def seek_sequences(folder: Path, sequences: Mapping[str, int]) -> Work[int]:
    wanted = pa.table({"topic": list(sequences), "sequence": list(sequences.values())})
    return (yield from _last(segments(folder), lambda segment: _begins_at_most_at(segment, wanted)))


def rows_at(
    folder: Path, offsets: Sequence[int], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Just these rows, in the order of their offsets; those that are nowhere are left out."""
    wanted = sorted(set(offsets))
    names = ["offset", *(name for name in columns if name != "offset")] if columns else None
    reader = Reader(folder, wanted[0] if wanted else 0, names)
    try:
        while wanted:
            reader.seek(wanted[0])
            batch = reader.read(wanted[-1] + 1, ALL_ROWS)
            if batch is None:
                return
            done = bisect_left(wanted, reader.offset)
            mask = pc.is_in(batch["offset"], pa.array(wanted[:done], pa.int64()))
            found = batch.filter(mask)
            if found.num_rows:
                yield found.select(columns) if columns else found
            wanted = wanted[done:]
    finally:
        reader.close()


# -- which segment ---------------------------------------------------------------------------------------


def _last(found: list[Segment], reached: Callable[[Segment], bool | None]) -> Work[int]:
    """Where the last segment begins for which that is true, as it is for those before it, or else the first.

    Segments for which it is not known do not count: to begin too early costs time only.
    """
    known = list(found)
    low, high = 0, len(known)
    while high - low > 1:
        middle = (low + high) // 2
        answer = reached(known[middle])
        yield
        if answer is None:
            del known[middle]
            high -= 1
        elif answer:
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
    """Where the row group begins that has the time, or may have it; that of the segment, if that is not known."""
    try:
        with SealedReader(segment.path) as sealed:
            later = (each.first for each in sealed.metadata.row_groups if each.last_time >= micros)
            return next(later, sealed.metadata.next)
    except (OSError, LogDamageError):
        return segment.first


def first_time(segment: Segment) -> int | None:
    """In microseconds; None if there are no messages. Raises LogDamageError, and OSError if it is gone."""
    if segment.sealed:
        with SealedReader(segment.path) as sealed:
            return sealed.metadata.first_time
    hot = HotReader(segment.path)
    try:
        group = next(hot.groups(), None)
    finally:
        hot.close()
    return None if group is None else int(group.batch["time"][0].value)


def _begins_at_most_at(segment: Segment, wanted: pa.Table) -> bool | None:
    """Whether each topic had at most come to its sequence when the segment began."""
    try:
        table = read_topics(segment.path.with_suffix(TOPICS))
    except (OSError, LogDamageError):
        return None
    rows = pc.index_in(wanted["topic"], value_set=table["topic"].combine_chunks())
    others = pc.max(table.filter(pc.is_null(table["topic"]))["next_sequence"]).as_py()
    reached = pc.fill_null(pc.take(table["next_sequence"], rows), others or 0)
    return bool(pc.all(pc.less_equal(reached, wanted["sequence"])).as_py())


def _search(
    folder: Path, start: int, columns: list[str], matches: Callable[[pa.RecordBatch], pa.Array]
) -> Work[int]:
    reader = Reader(folder, start, ["offset", *columns])
    try:
        while (batch := reader.read(rows=ALL_ROWS)) is not None:
            place = pc.index(matches(batch), True).as_py()
            if place >= 0:
                return int(batch["offset"][place].as_py())
            yield
        return reader.offset
    finally:
        reader.close()
