"""Bursts agree with plain lists of messages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.model import Burst, Encoder, Format, Message, Slices

Rows = list[tuple[bytes, bytes, Format]]

topics = st.sampled_from([b"a", b"b", "é".encode()])
rows_of_some = st.lists(
    st.tuples(topics, st.binary(max_size=4), st.sampled_from([Format.BYTES, Format.TEXT])), min_size=1, max_size=15
)


def as_messages(rows: Rows) -> list[Message]:
    return [Message(topic.decode(), payload, format_) for topic, payload, format_ in rows]


@st.composite
def stretch_of(draw: st.DrawFn, count: int) -> tuple[int, int]:
    start = draw(st.integers(0, count - 1))
    return start, draw(st.integers(start + 1, count))


@given(rows_of_some)
def test_rows_become_columns_and_rows_again(rows: Rows) -> None:
    burst = Burst.of("some", rows)
    assert burst.dialect == "some"
    assert len(burst) == len(rows)
    assert list(burst.messages()) == as_messages(rows)


@given(rows_of_some)
def test_a_run_is_as_long_as_it_can_be(rows: Rows) -> None:
    burst = Burst.of("some", rows)
    kinds = list(zip(burst.topics, burst.formats, strict=True))
    assert all(one != two for one, two in pairwise(kinds))
    assert burst.run_ends[-1] == len(rows)


def test_a_burst_of_nothing() -> None:
    burst = Burst.of("some", [])
    assert len(burst) == 0
    assert list(burst.messages()) == []


@given(rows_of_some, st.data())
def test_cut(rows: Rows, data: st.DataObject) -> None:
    start, stop = data.draw(stretch_of(len(rows)))
    burst = Burst.of("some", rows)
    cut = burst.cut(start, stop)
    assert list(cut.messages()) == as_messages(rows[start:stop])
    assert cut.run_ends[-1] == len(cut) == stop - start
    assert cut.run_ends[0] > 0, "a run with no message"
    assert len(cut.topics) == len(cut.formats) == len(cut.run_ends)
    assert cut.block is burst.block
    assert list(burst.messages()) == as_messages(rows)


@given(rows_of_some, st.data())
def test_cut_of_a_cut(rows: Rows, data: st.DataObject) -> None:
    start, stop = data.draw(stretch_of(len(rows)))
    first, last = data.draw(stretch_of(stop - start))
    cut = Burst.of("some", rows).cut(start, stop).cut(first, last)
    assert list(cut.messages()) == as_messages(rows[start:stop][first:last])


@given(rows_of_some, st.data())
def test_cut_takes_the_bounds_along(rows: Rows, data: st.DataObject) -> None:
    start, stop = data.draw(stretch_of(len(rows)))
    burst = Burst.of("some", rows)
    burst.bounds = list(range(100, 101 + len(rows)))
    assert burst.cut(start, stop).bounds == list(range(100 + start, 101 + stop))


@given(rows_of_some)
def test_rename(rows: Rows) -> None:
    burst = Burst.of("some", rows)
    burst.bounds, burst.native = list(range(1 + len(rows))), Encoder()
    renamed = burst.rename([b"new/" + topic for topic in burst.topics])
    expected = [(b"new/" + topic, payload, format_) for topic, payload, format_ in rows]
    assert list(renamed.messages()) == as_messages(expected)
    assert renamed.native is None
    assert list(burst.messages()) == as_messages(rows)


@given(rows_of_some, st.data())
def test_runs_of_slices(rows: Rows, data: st.DataObject) -> None:
    slices: Slices = data.draw(st.lists(stretch_of(len(rows)), max_size=4))
    burst = Burst.of("some", rows)
    runs = list(burst.runs(slices))
    assert [i for _, first, last in runs for i in range(first, last)] == [
        i for a, b in slices for i in range(a, b)
    ]
    for run, first, last in runs:
        assert first < last
        for topic, _, format_ in rows[first:last]:
            assert (topic, format_) == (burst.topics[run], burst.formats[run])


def test_runs_without_slices_are_all_runs() -> None:
    burst = Burst.of("some", [(b"a", b"", Format.TEXT), (b"a", b"", Format.TEXT), (b"b", b"", Format.TEXT)])
    assert list(burst.runs()) == [(0, 0, 2), (1, 2, 3)]


def test_a_topic_that_is_not_utf8_has_no_row() -> None:
    with pytest.raises(UnicodeDecodeError):
        list(Burst.of("some", [(b"\xff", b"", Format.BYTES)]).messages())
