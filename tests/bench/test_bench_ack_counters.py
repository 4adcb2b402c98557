"""Acknowledgement counters: every ack counts once, for any block boundaries, and no refusal counts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.bench.ack_counters import AckCounter, EqualAckCounter, NumberedAckCounter
from polycast.errors import RemoteError

OK = b'{"status": "OK"}\n'
ALIKE = OK * 7
NUMBERED = b"PING\r\n" + b"".join(
    b'MSG in 1 9\r\n{"stream":"S","seq":%d}\r\n' % number for number in range(95, 102)
)


def numbered() -> AckCounter:
    return NumberedAckCounter(b'\r\n{"stream":"S","seq":', (b'"error"', b"-ERR"))


def count(ack_counter: AckCounter, data: bytes, cuts: list[int]) -> int:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return sum(ack_counter.take(data[start:stop]) for start, stop in pairwise(places))


@given(st.lists(st.integers(1, len(ALIKE)), max_size=40))
def test_equal_acks_cut_anywhere(cuts: list[int]) -> None:
    ack_counter = EqualAckCounter(OK)
    assert count(ack_counter, ALIKE, cuts) == 7
    assert ack_counter.unread == b""


@given(st.lists(st.integers(1, len(NUMBERED)), max_size=40))
def test_numbered_acks_cut_anywhere(cuts: list[int]) -> None:
    assert count(numbered(), NUMBERED, cuts) == 7


def test_a_refusal_among_equal_acks_is_shown() -> None:
    with pytest.raises(RemoteError, match=r'expected .*, received b.\{"status": "ERROR", "code": 500'):
        EqualAckCounter(OK).take(OK * 3 + b'{"status": "ERROR", "code": 500}\n' + OK)


def test_half_a_refusal_is_enough() -> None:
    with pytest.raises(RemoteError, match="ERR"):
        EqualAckCounter(OK).take(OK + b'{"status": "ERR')


def test_missing_parts_are_not_counted() -> None:
    ack_counter = EqualAckCounter(OK)
    assert ack_counter.take(OK * 2 + OK[:-1]) == 2
    assert ack_counter.unread == OK[:-1]


@pytest.mark.parametrize(
    "refusal", [b'MSG in 1 9\r\n{"error":{"code":503},"seq":0}\r\n', b"-ERR 'Slow Consumer'\r\n"]
)
def test_a_refusal_among_numbered_acks_is_shown(refusal: bytes) -> None:
    for cut in range(len(refusal)):
        ack_counter = numbered()
        with pytest.raises(RemoteError, match="a refusal"):
            count(ack_counter, NUMBERED + refusal, [len(NUMBERED) + cut])
