"""The payload index: false positives are possible, false negatives are not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.errors import UsageError
from polycast.pipelines.index.blocks import SCHEMA, PayloadIndex, to_rows
from polycast.pipelines.index.grams import FilterBuilder, PayloadFilter
from polycast.pipelines.index.search import FieldMatch, SearchTerms, matching, to_field, value_at

words = st.text('ab1_ -."\\{}:,é', max_size=12).map(str.encode)
payloads = st.lists(st.one_of(words, st.binary(max_size=12)), max_size=8)
scalars = st.one_of(
    st.text('ab1_ .\\"é\n', max_size=6),
    st.integers(-20, 20),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
)
objects = st.recursive(
    st.dictionaries(st.sampled_from("abé"), scalars, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abé"), st.one_of(inner, scalars, st.lists(inner)), max_size=3),
    max_leaves=4,
)


def to_batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"payload": pa.array(values, pa.binary())})


def to_filter(values: list[bytes]) -> PayloadFilter:
    built = FilterBuilder()
    built.add(to_batch(values)["payload"])
    return built.to_filter()


def found(values: list[bytes], terms: SearchTerms) -> list[bytes]:
    result: list[bytes] = matching(to_batch(values), terms)["payload"].to_pylist()
    return result


@given(payloads, st.data())
def test_no_false_negatives_for_texts(values: list[bytes], data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(values or [b""]))
    begin = data.draw(st.integers(0, len(whole)))
    text = whole[begin : data.draw(st.integers(begin, len(whole)))]
    assert found(values, SearchTerms(text)) == [value for value in values if text in value]
    assert not values or to_filter(values).may_have_text(text)


@given(payloads, words)
def test_an_excluded_text_does_not_occur(values: list[bytes], text: bytes) -> None:
    if not SearchTerms(text).may_be_in(to_filter(values)):
        assert not found(values, SearchTerms(text))


def paths_of(value: Any, before: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        return [(before, value)]
    return [each for name, inner in value.items() for each in paths_of(inner, (*before, name))]


@given(st.lists(objects, min_size=1, max_size=4), st.booleans(), st.data())
def test_fields_match_any_json_encoding(rows: list[Any], escaped: bool, data: st.DataObject) -> None:
    values = [
        json.dumps(row, ensure_ascii=escaped, indent=data.draw(st.sampled_from([None, 1]))).encode()
        for row in rows
    ]
    chosen = data.draw(st.sampled_from(rows))
    for path, value in paths_of(chosen):
        text = value if isinstance(value, str) else json.dumps(value)
        if isinstance(value, list) or not path:
            continue  # objects and arrays never match
        terms = SearchTerms(fields=(FieldMatch(path, text),))
        right = [each for each in values if value_at(each, path) == text]
        assert found(values, terms) == right
        assert right
        assert terms.may_be_in(to_filter(values))


def test_values_are_compared_as_written() -> None:
    payload = rb'{"a": {"b": 1.0, "c": "x\u0079", "d": [1], "e": null}, "f": 1, "f": true}'
    there = {"a.b": "1.0", "a.c": "xy", "a.d": None, "a.e": "null", "f": "true", "a": None, "g": None, "f.x": None}
    assert {name: value_at(payload, name.split(".")) for name in there} == there
    assert value_at(b"[1]", ["a"]) is value_at(b"\xff", ["a"]) is value_at(b"", ["a"]) is None


def test_field_arguments() -> None:
    assert to_field("a.b=c=d") == FieldMatch(("a", "b"), "c=d")
    for wrong in ("a", "=b", "a..b=c", ""):
        with pytest.raises(UsageError, match="is not NAME=VALUE"):
            to_field(wrong)


# -- selectivity -----------------------------------------------------------------------------------------


def orders(first: int, count: int) -> list[bytes]:
    return [
        msgspec.json.encode({"order": n, "customer": f"name-{n * 7919 % 100_003}"})
        for n in range(first, first + count)
    ]


def test_filters_exclude_other_orders() -> None:
    built = to_filter(orders(1000, 2000))
    denied = [
        n for n in range(5000, 6000) if not SearchTerms(fields=(FieldMatch(("order",), str(n)),)).may_be_in(built)
    ]
    assert len(denied) > 900
    assert all(SearchTerms(fields=(FieldMatch(("order",), str(n)),)).may_be_in(built) for n in range(1000, 3000))
    assert not built.may_have_text(b'"order":5000,')
    assert built.may_have_text(b'"order":1500,')
    assert not built.may_have_text(b"customs")


def test_random_bytes_exclude_nothing() -> None:
    noise = random.Random(1).randbytes(6_000_000)
    built = to_filter([noise[:4_500_000], noise[4_500_000:]])
    assert built.may_have_text(b"customs")
    assert len(built.grams) == 131_072
    assert len(built.tokens) <= 524_288


# -- on disk ---------------------------------------------------------------------------------------------


def to_table(index: PayloadIndex, firsts: list[int]) -> pa.Table:
    blocks = []
    for first in firsts:
        built = FilterBuilder()
        built.add(pa.array([b"block %d here" % first], pa.binary()))
        blocks.append((first, first + index.block, built, 1))
    return pa.Table.from_batches([to_rows(blocks)], SCHEMA)


def test_blocks_are_indexed_once_and_files_are_merged(tmp_path: Path) -> None:
    index = PayloadIndex(tmp_path / "index", block=10)
    assert index.missing(25, 55) == [20, 30, 40]
    index.write(to_table(index, [20, 40]))
    assert [(file.first, file.next) for file in index.files()] == [(20, 30), (40, 50)]
    assert index.missing(25, 55) == [30]
    index.write(to_table(index, [30, 40]))
    assert index.missing(0, 55) == [0, 10]
    terms = SearchTerms(b"block 30 here")
    assert index.skippable(0, 1000, terms.may_be_in) == [(20, 30), (40, 50)]
    assert index.skippable(25, 30, terms.may_be_in) == [(20, 30)]
    index.write(to_table(index, [first for first in range(0, 640, 10) if first != 30]))
    assert [(file.first, file.next) for file in index.files()] == [(0, 640)]
    skipped = index.skippable(0, 640, terms.may_be_in)
    assert len(skipped) == 63
    assert (30, 40) not in skipped


def test_an_unreadable_index_file_skips_nothing(tmp_path: Path) -> None:
    index = PayloadIndex(tmp_path / "index", block=10)
    index.write(to_table(index, [0]))
    index.files()[0].path.write_bytes(b"no Parquet")
    assert index.skippable(0, 10, lambda built: False) == []
