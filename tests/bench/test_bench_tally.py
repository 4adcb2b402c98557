"""Tallies: every answer once, however the bytes are cut, and no refusal among them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.bench.tally import AlikeTally, NumberedTally, Tally
from polycast.errors import RemoteError

OK = b'{"status": "OK"}\n'
ALIKE = OK * 7
NUMBERED = b"PING\r\n" + b"".join(
    b'MSG in 1 9\r\n{"stream":"S","seq":%d}\r\n' % number for number in range(95, 102)
)


def numbered() -> Tally:
    return NumberedTally(b'\r\n{"stream":"S","seq":', (b'"error"', b"-ERR"))


def count(tally: Tally, data: bytes, cuts: list[int]) -> int:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return sum(tally.take(data[start:stop]) for start, stop in pairwise(places))


@given(st.lists(st.integers(1, len(ALIKE)), max_size=40))
def test_alike_answers_cut_anywhere(cuts: list[int]) -> None:
    tally = AlikeTally(OK)
    assert count(tally, ALIKE, cuts) == 7
    assert tally.unread() == b""


@given(st.lists(st.integers(1, len(NUMBERED)), max_size=40))
def test_numbered_answers_cut_anywhere(cuts: list[int]) -> None:
    assert count(numbered(), NUMBERED, cuts) == 7


def test_a_refusal_among_alike_answers_is_shown() -> None:
    with pytest.raises(RemoteError, match=r'an answer other than .*: b.\{"status": "ERROR", "code": 500'):
        AlikeTally(OK).take(OK * 3 + b'{"status": "ERROR", "code": 500}\n' + OK)


def test_half_a_refusal_is_enough() -> None:
    with pytest.raises(RemoteError, match="ERR"):
        AlikeTally(OK).take(OK + b'{"status": "ERR')


def test_what_is_missing_is_not_counted() -> None:
    tally = AlikeTally(OK)
    assert tally.take(OK * 2 + OK[:-1]) == 2
    assert tally.unread() == OK[:-1]


@pytest.mark.parametrize(
    "refusal", [b'MSG in 1 9\r\n{"error":{"code":503},"seq":0}\r\n', b"-ERR 'Slow Consumer'\r\n"]
)
def test_a_refusal_among_numbered_answers_is_shown(refusal: bytes) -> None:
    for cut in range(len(refusal)):
        tally = numbered()
        with pytest.raises(RemoteError, match="a refusal"):
            count(tally, NUMBERED + refusal, [len(NUMBERED) + cut])
