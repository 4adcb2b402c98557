"""The time at which offsets were assigned."""

from __future__ import annotations

import pytest

from polycast.server.stats.offset_times import EXACTNESS, SAMPLES_AT_MOST, OffsetTimes


@pytest.fixture
def samples() -> OffsetTimes:
    """Starts at offset 10; offsets 10 to 14 are assigned at second 101, offset 15 at second 103."""
    found = OffsetTimes()
    for next_offset, now in ((10, 100.0), (15, 101.0), (15, 102.0), (16, 103.0)):
        found.note(next_offset, now)
    return found


@pytest.mark.parametrize(
    ("offset", "when"), [(-1, None), (9, None), (10, 101.0), (14, 101.0), (15, 103.0), (16, 105.0), (99, 105.0)]
)
def test_the_time_of_an_offset(samples: OffsetTimes, offset: int, when: float | None) -> None:
    assert samples.time_of(offset, now=105.0) == when


def test_no_time_without_offsets() -> None:
    assert OffsetTimes().time_of(0, now=5.0) is None


def test_older_times_are_less_precise() -> None:
    samples = OffsetTimes()
    last = 40 * SAMPLES_AT_MOST
    for second in range(last + 1):
        samples.note(second, float(second))
    assert len(samples._offsets) <= SAMPLES_AT_MOST
    for offset in range(0, last, 97):
        came, reported = offset + 1.0, samples.time_of(offset, float(last))
        assert reported is not None
        assert came <= reported <= came + (last - offset) / EXACTNESS + 1
