"""Patterns applied to columns match the same topics as the patterns of the model."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.log.read.masks import mask_of, matching
from polycast.model import Contains, Everything, Exact, Pattern, Prefix

ALPHABET = "ab./%_\\*é\0🐟"
RESERVED_PREFIX = ["polycast/", "polycast/a", "polycast", "polycast.a", "apolycast/", "olycast/"]

values = st.one_of(st.text(ALPHABET, max_size=4), st.sampled_from(RESERVED_PREFIX))
topics = st.one_of(
    st.text(ALPHABET, max_size=6), st.sampled_from(RESERVED_PREFIX), values.map("polycast/".__add__)
)
patterns: st.SearchStrategy[Pattern] = st.one_of(
    st.builds(Exact, values), st.builds(Prefix, values), st.builds(Contains, values), st.just(Everything())
)


def to_batch(names: list[str]) -> pa.RecordBatch:
    columns = {"topic": pa.array(names, pa.string()), "row": pa.array(range(len(names)), pa.int64())}
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(topics, max_size=12), patterns)
def test_a_mask_is_what_matches(names: list[str], pattern: Pattern) -> None:
    found = mask_of(pa.array(names, pa.string()), pattern).to_pylist()
    assert found == [pattern.matches(name) for name in names]


@given(st.lists(topics, max_size=12), st.lists(patterns, max_size=4))
def test_rows_that_match_at_least_one(names: list[str], several: list[Pattern]) -> None:
    found = matching(to_batch(names), several)
    wanted = [row for row, name in enumerate(names) if any(pattern.matches(name) for pattern in several)]
    assert found["row"].to_pylist() == wanted


@given(st.lists(topics, min_size=1, max_size=12), patterns, st.data())
def test_a_slice_is_like_any_batch(names: list[str], pattern: Pattern, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(names)))
    size = data.draw(st.integers(0, len(names) - begin))
    found = matching(to_batch(names).slice(begin, size), [pattern])
    assert found["row"].to_pylist() == [n for n in range(begin, begin + size) if pattern.matches(names[n])]


@pytest.mark.parametrize("pattern", [Exact("a"), Prefix(""), Contains(""), Everything()], ids=str)
def test_an_empty_batch_has_no_matches(pattern: Pattern) -> None:
    assert matching(to_batch([]), [pattern]).num_rows == 0
    assert matching(to_batch(["a"]), []).num_rows == 0
