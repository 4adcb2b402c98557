"""The functions for runs in C and in Python return the same."""

from __future__ import annotations

from itertools import accumulate
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polycast.model import Encoder, PackedSlices
from polycast.routing import runs, runs_in_python
from polycast.routing.audience import Audience, Subscriber

needs_c = pytest.mark.skipif(not runs.COMPILED, reason="polycast.routing._runs is not compiled here")
each = pytest.mark.parametrize("module", [runs, runs_in_python])

ENCODER = Encoder()
LINK, CLIENTS = Subscriber("link", link=True), [Subscriber(i) for i in range(3)]
AUDIENCES = [
    Audience(frozenset((member, ENCODER) for member in members))
    for members in ([], CLIENTS[:1], CLIENTS[1:], [LINK, CLIENTS[0]], [LINK])
]
FOUND = {f"t{i}": i for i in range(9)}
"""The audience of each topic, as its index."""

bursts = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), min_size=1, max_size=30)


def key_of(topic: int) -> bytes:
    return b"t%d" % topic


def refresh_by(calls: list[str], version: int) -> Any:
    def refresh(topic: Any) -> None:
        calls.append(topic.name)
        topic.audience = AUDIENCES[FOUND[topic.name] % len(AUDIENCES)]
        topic.index_version = version

    return refresh


def play(module: ModuleType, sent: list[list[tuple[int, int]]], local: bool) -> object:
    young: dict[bytes, Any] = {}
    used: list[bytes] = []
    seen: list[object] = []
    calls: list[str] = []

    def use(key: bytes) -> Any:
        used.append(key)
        return young.setdefault(key, module.Topic(key.decode(), 7))

    for version, burst in enumerate(sent):
        keys, ends = [key_of(topic) for topic, _ in burst], list(accumulate(count for _, count in burst))
        topics, sequences = module.number(young, use, keys, ends, 100 * version)
        assert [topic.name.encode() for topic in topics] == keys
        grouped = module.group(topics, ends, version // 2, refresh_by(calls, version // 2), local)
        slices = [(audience, list(packed), packed.messages) for audience, packed in grouped]
        seen.append((sequences, [(topic.next_sequence, topic.last_offset) for topic in topics], slices))
    return seen, used, calls


@needs_c
@given(st.lists(bursts, max_size=4), st.booleans())
def test_both_return_the_same(sent: list[list[tuple[int, int]]], local: bool) -> None:
    assert play(runs, sent, local) == play(runs_in_python, sent, local)


@each
@given(bursts, st.booleans())
def test_every_message_is_in_one_slice_of_its_audience(
    module: ModuleType, burst: list[tuple[int, int]], local: bool
) -> None:
    ends = list(accumulate(count for _, count in burst))
    topics = [module.Topic(f"t{topic}", 0) for topic, _ in burst]
    grouped = module.group(topics, ends, 0, refresh_by([], 0), local)
    audiences = [AUDIENCES[topic % len(AUDIENCES)] for topic, count in burst for _ in range(count)]
    wanted = [audience.local if local else audience for audience in audiences]
    for audience, slices in grouped:
        indices = [i for start, stop in slices for i in range(start, stop)]
        assert indices == [i for i, its in enumerate(wanted) if its is audience]
        assert slices.messages == len(indices)
    assert {audience for audience, _ in grouped} == {audience for audience in wanted if audience}


@each
def test_runs_that_do_not_fit(module: ModuleType) -> None:
    topic = module.Topic("t0", 0)
    with pytest.raises(ValueError):
        module.number({b"t0": topic}, None, [b"t0"], [1, 2], 0)
    with pytest.raises(ValueError):
        module.group([topic], [1, 2], 0, refresh_by([], 0), False)


@each
def test_a_new_topic(module: ModuleType) -> None:
    topic = module.Topic("name", 3)
    assert (topic.name, topic.next_sequence, topic.last_offset, topic.index_version) == ("name", 3, -1, -1)
    assert module.Topic("name", 3, 8).last_offset == 8


def test_packed_slices_are_a_sequence() -> None:
    [(_, slices)] = runs.group([runs.Topic("t1", 0)], [4], 0, refresh_by([], 0), False)
    assert type(slices) is PackedSlices
    assert (len(slices), slices[0], list(slices), slices.messages) == (1, (0, 4), [(0, 4)], 4)
