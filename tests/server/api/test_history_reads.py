"""`polycast/history` reads only the parts of the log that can match."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from log.log_builder import LogBuilder
from polycast.log.read import query
from polycast.log.read.reader import Reader
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import finish, once
from polycast.log.upkeep.sealing import seal
from polycast.model import StartPosition, parse_pattern
from polycast.routing import Topic, Topics
from polycast.server.api.history import BYTES_AT_MOST, HistoryQuery, HistoryRow, MissingRow, Rows, read_history
from polycast.server.api.messages import read_messages
from polycast.server.replay.last_offsets import ANYWHERE, LastOffsets

MANY = [f"many.{number:03}" for number in range(100)]


class CountingReader(Reader):
    reads: ClassVar[list[int]] = []
    """The first offset of each batch."""

    def read(self, stop: int | None = None, rows: int = 8192) -> pa.RecordBatch | None:
        batch = super().read(stop, rows)
        if batch is not None:
            self.reads.append(batch["offset"][0].as_py())
        return batch


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(query, "Reader", CountingReader)
    monkeypatch.setattr(CountingReader, "reads", [])
    return CountingReader.reads


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    """Sealed: 0 old, 100 busy, 200 many topics, 300 busy. Hot: 400 busy in two groups, 600 busy."""
    builder = LogBuilder(tmp_path)
    for topics in (["old"], ["busy"], MANY, ["busy"]):
        seal(builder.segment(100, topics=topics))
    builder.segment(100, 100, topics=["busy"], payload=bytes(20_000))
    builder.segment(10, topics=["busy"])
    return builder


@pytest.fixture
def index(builder: LogBuilder) -> Iterator[SegmentIndex]:
    index = SegmentIndex(builder.folder)
    yield index
    index.close()


def topics_of(builder: LogBuilder) -> Topics:
    last = {row["topic"]: (row["sequence"] + 1, row["offset"]) for row in builder.rows}
    topics = Topics(1000)
    topics.restore([Topic(name, *place) for name, place in last.items()], 0)
    return topics


def find_rows(
    index: SegmentIndex, newest: LastOffsets, pattern: str, limit: int = 100, start: StartPosition | None = None
) -> list[HistoryRow]:
    wanted = HistoryQuery(parse_pattern(pattern), start, limit)
    return messages_in(finish(read_history(index, wanted, newest.end([wanted.pattern]), 610)))


def messages_in(rows: Rows) -> list[HistoryRow]:
    return [row for row in rows if isinstance(row, HistoryRow)]


@pytest.mark.parametrize("pattern", ["absent", "absent.>", "~absent", "polycast/>"])
@pytest.mark.parametrize("start", [None, StartPosition(), StartPosition(seconds=0.0)])
def test_no_topic_causes_no_read(
    builder: LogBuilder, index: SegmentIndex, reads: list[int], pattern: str, start: StartPosition | None
) -> None:
    assert find_rows(index, LastOffsets(topics_of(builder), 610), pattern, start=start) == []
    assert reads == []


def test_a_sequence_of_an_unknown_topic_causes_no_read(
    builder: LogBuilder, index: SegmentIndex, reads: list[int]
) -> None:
    assert find_rows(index, LastOffsets(topics_of(builder), 610), "absent", start=StartPosition(sequence=5)) == []
    assert reads == []


def test_an_old_topic_is_read_from_its_segment_only(
    builder: LogBuilder, index: SegmentIndex, reads: list[int]
) -> None:
    newest = LastOffsets(topics_of(builder), 610)
    for pattern in ("old", "ol>", "~ld"):
        for start in (None, StartPosition()):
            assert [row.offset for row in find_rows(index, newest, pattern, 1000, start)] == list(range(100))
    assert reads == [0] * 6


def test_one_of_many_topics(builder: LogBuilder, index: SegmentIndex, reads: list[int]) -> None:
    """Row groups with many topics have min and max statistics only; the hot segments are newer than the topic."""
    newest = LastOffsets(topics_of(builder), 610)
    assert [row.offset for row in find_rows(index, newest, "many.042")] == [242]
    assert [row.offset for row in find_rows(index, newest, "many.>", 3)] == [297, 298, 299]
    assert reads == [200, 200]


def test_the_last_of_a_busy_topic_are_in_the_last_part(
    builder: LogBuilder, index: SegmentIndex, reads: list[int]
) -> None:
    newest = LastOffsets(topics_of(builder), 610)
    assert [row.offset for row in find_rows(index, newest, "busy", 3)] == [607, 608, 609]
    assert reads == [600]
    assert len(find_rows(index, newest, ">", 120)) == 120
    assert reads == [600, 600, 500, 400]


def test_an_incomplete_table_falls_back_to_segments(
    builder: LogBuilder, index: SegmentIndex, reads: list[int]
) -> None:
    """After an unclean stop, a topic that is not in the table may be in earlier segments."""
    topics = topics_of(builder)
    topics.floor = 1
    assert find_rows(index, LastOffsets(topics, 610), "absent") == []
    assert reads == [600, 500, 400]
    reads.clear()
    assert find_rows(index, LastOffsets(topics, 350), "absent") == []
    assert reads == []
    assert find_rows(index, LastOffsets(topics, 350), "many.1000") == []
    assert reads == []
    assert find_rows(index, LastOffsets(topics, 350), "many.0421") == []
    assert reads == [200]


# -- the table of topics ---------------------------------------------------------------------------------


def ends(newest: LastOffsets, *patterns: str) -> list[int]:
    return [finish(newest.end([parse_pattern(pattern)])) for pattern in patterns]


def test_the_table_of_topics() -> None:
    topics = Topics(1000)
    topics.restore([Topic("a.1", 5, 40), Topic("a.2", 5, 70), Topic("b", 1, -1), Topic("polycast/x", 1, 90)], 0)
    newest = LastOffsets(topics, 100)
    assert ends(newest, "a.1", "a.2", "b", "c") == [41, 71, 0, 0]
    assert ends(newest, "a.>", "~1", ">", "~c", "polycast/>") == [71, 41, 71, 0, 91]
    topics.use(b"c").last_offset = 120
    assert ends(newest, "c", ">", "a.>") == [121, 121, 71]


def test_a_table_that_was_not_complete() -> None:
    topics = Topics(1000)
    topics.restore([Topic("a", 5, 40)], 7)
    newest = LastOffsets(topics, 100)
    assert ends(newest, "a", "c", ">") == [100, 100, 100]
    topics.use(b"c").last_offset = 120
    assert ends(newest, "a", "c", ">") == [100, 121, 121]


def test_a_table_that_forgets() -> None:
    topics = Topics(4)
    newest = LastOffsets(topics, 0)
    for number in range(8):
        topics.use(b"%d" % number).last_offset = number
        topics.trim()
    assert topics.forgotten
    assert ends(newest, "7", "1", ">", "~7") == [8, ANYWHERE, ANYWHERE, ANYWHERE]


# -- segments appear and disappear -----------------------------------------------------------------------


def test_a_segment_that_is_sealed_or_removed_during_the_read(builder: LogBuilder, index: SegmentIndex) -> None:
    wanted = HistoryQuery(parse_pattern("busy"), None, 1000)
    work = read_history(index, wanted, once(lambda: 610), 610)
    next(work)
    next(work)
    for path in sorted(builder.folder.glob("*.arrows"))[:1]:
        seal(path)
        path.unlink(missing_ok=True)
    sorted(builder.folder.glob("*.parquet"))[0].unlink()
    assert len(messages_in(finish(work))) == 410
    assert len(finish(read_history(index, wanted, once(lambda: 610), 610))) == 410


def test_a_segment_that_grows(builder: LogBuilder, index: SegmentIndex) -> None:
    wanted = HistoryQuery(parse_pattern(">"), None, 5)
    builder.begin()
    for _ in range(3):
        builder.add(2, topics=["new"])
        rows = finish(read_history(index, wanted, once(lambda: builder.next), builder.next))
        assert [row.offset for row in messages_in(rows)] == list(range(builder.next - 5, builder.next))
    builder.end()


def test_a_segment_that_is_damaged(builder: LogBuilder, index: SegmentIndex) -> None:
    [last] = builder.folder.glob("*600.arrows")
    last.write_bytes(b"no segment")
    [old] = builder.folder.glob("*300.parquet")
    old.write_bytes(b"no segment")
    wanted = HistoryQuery(parse_pattern("busy"), None, 1000)
    rows = finish(read_history(index, wanted, once(lambda: 610), 610))
    assert [row.offset for row in messages_in(rows)] == [*range(100, 200), *range(400, 600)]
    missing = [row.missing for row in rows if isinstance(row, MissingRow)]
    assert [(each.first, each.next, each.reason) for each in missing] == [
        (300, 400, "the log is damaged there"),
        (600, 610, "the log is damaged there"),
    ]
    assert rows.index(MissingRow(missing[0])) == 100
    rows = finish(
        read_history(index, HistoryQuery(parse_pattern("busy"), StartPosition(), 1000), once(lambda: 610), 610)
    )
    assert [row.offset for row in messages_in(rows)] == [*range(100, 200), *range(400, 600)]


def test_a_response_ends_inside_a_large_group(tmp_path: Path) -> None:
    """A committed batch is one group, of any size."""
    LogBuilder(tmp_path).segment(12, topics=["big"], payload=b"." * (BYTES_AT_MOST // 4))
    index = SegmentIndex(tmp_path)
    last, first = (HistoryQuery(parse_pattern("big"), start, 1000) for start in (None, StartPosition()))
    rows = messages_in(finish(read_history(index, last, once(lambda: 12), 12)))
    assert [row.offset for row in rows] == [8, 9, 10, 11]
    rows = messages_in(finish(read_history(index, first, once(lambda: 12), 12)))
    assert [row.offset for row in rows] == [0, 1, 2, 3]
    page = json.loads(finish(read_messages(index, first, once(lambda: 12), 12, (), lambda gap: None, "")))
    assert ([message["offset"] for message in page["messages"]], page["next"]) == ([0, 1, 2, 3], 4)
    index.close()


def test_pieces_of_a_batch() -> None:
    payloads = pa.array([b""] * 100 + [bytes(1000)] * 5)
    batch = pa.RecordBatch.from_arrays([payloads], ["payload"])
    found = list(query.pieces([batch], 2500))
    assert pa.concat_batches(found) == batch
    assert max(part.nbytes for part in found) <= 2500
    assert [part.num_rows for part in query.pieces([batch.slice(100)], 10)] == [1] * 5


@pytest.mark.parametrize("start", [None, StartPosition()])
def test_an_empty_log(tmp_path: Path, start: StartPosition | None) -> None:
    index, wanted = SegmentIndex(tmp_path), HistoryQuery(parse_pattern("a"), start, 10)
    assert finish(read_history(index, wanted, once(lambda: 5), 5)) == []
    page = finish(read_messages(index, wanted, once(lambda: 5), 5, (), lambda gap: None, "x"))
    assert json.loads(page) == {"messages": [], "next": 5, "log": "x"}
    index.close()
