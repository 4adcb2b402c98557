"""Whatever a session is fed: events or one closing, the same however it was cut, and buffers stay small."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dialects.feed import Feeder, bursts, merged, rows
from fuzz.corpus import EXAMPLES, inputs
from polycast.dialects.registry import ROLES
from polycast.dialects.session import SessionContext
from polycast.model import Closing, Limits

LIMITS = Limits(payload_bytes=200, topic_bytes=20, line_bytes=300)
BUFFERED_BYTES = 2 * (LIMITS.payload_bytes + LIMITS.topic_bytes + LIMITS.line_bytes) + 100

each_role = pytest.mark.parametrize("role", ROLES)
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def fed(role: str, parts: list[bytes], has_log: bool) -> Feeder:
    feeder = Feeder(ROLES[role].session(SessionContext(LIMITS, has_log=has_log)))
    for part in parts:
        feeder.give(part)
    return feeder


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@each_role
@many
@given(data=st.data())
def test_fuzz_session(role: str, data: st.DataObject) -> None:
    text = b"".join(data.draw(inputs(role)))
    places = data.draw(st.lists(st.integers(0, 4096), max_size=20))
    has_log = data.draw(st.booleans())
    whole, parts = fed(role, [text], has_log), fed(role, cut(text, places), has_log)
    for feeder in (whole, parts):
        assert not any(isinstance(event, Closing) for event in feeder.events[:-1])
        assert feeder.longest_buffer <= BUFFERED_BYTES
        for burst in bursts(feeder.events):
            assert all(0 <= s <= e <= len(burst.block) for s, e in zip(burst.starts, burst.ends, strict=True))
    dialect = ROLES[role].dialect
    assert merged(rows(whole.events, dialect)) == merged(rows(parts.events, dialect))
