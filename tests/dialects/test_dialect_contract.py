"""What holds for every role of every dialect."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.feed import Feeder, feed, in_two, one_by_one, rows
from dialects.wires import PUBLISHERS, SUBSCRIBERS, WIRES, Wire
from polycast.dialects.base import Terms
from polycast.dialects.registry import ROLES
from polycast.model import Burst, Closing, Limits, Subscribe

SMALL = Limits(payload_bytes=24, topic_bytes=5, line_bytes=24)
HEADER_BYTES = 32
"""More than any header of a dialect takes beside its topic."""

each_role = pytest.mark.parametrize("role", ROLES)
each_publisher = pytest.mark.parametrize("role", PUBLISHERS)
each_subscriber = pytest.mark.parametrize("role", SUBSCRIBERS)
some = settings(max_examples=60, deadline=None)


def test_every_role_has_a_wire() -> None:
    assert set(WIRES) == set(ROLES)


def test_role_names_begin_with_their_dialect() -> None:
    assert all(name == role.listener for name, role in ROLES.items())
    assert all(name.split(".")[0] == role.dialect for name, role in ROLES.items())


# -- input: frames as they should be, frames as they should not, and noise -------------------------------

WORDS = [b"pub ", b"sub ", b"unsub ", b"subscribe ", b"time", b" ", b"  ", b"!", b"\n", b"\r\n", b"\r", b"0", b"7"]
noise = st.one_of(st.binary(max_size=12), st.sampled_from(WORDS))
topics = st.text("ab/é", min_size=1, max_size=6).map(str.encode)
payloads = st.binary(max_size=28)


def frames(wire: Wire) -> st.SearchStrategy[bytes]:
    kinds: list[st.SearchStrategy[bytes]] = [noise, st.just(wire.later)]
    if wire.publish:
        kinds += [st.builds(wire.publish, topics, payloads)] * 3
    if wire.subscribe:
        kinds.append(st.builds(wire.subscribe, topics))
    return st.one_of(kinds)


def inputs(role: str) -> st.SearchStrategy[bytes]:
    wire = WIRES[role]
    return st.lists(frames(wire), max_size=8).map(lambda parts: wire.handshake + b"".join(parts))


def check_events(role: str, feeder: Feeder) -> None:
    assert not any(isinstance(event, Closing) for event in feeder.events[:-1])
    for event in feeder.events:
        if isinstance(event, Burst):
            check_burst(event, WIRES[role].name_bytes(SMALL.topic_bytes))


def check_burst(burst: Burst, name_bytes: int) -> None:
    assert len(burst) > 0
    assert len(burst.starts) == len(burst.ends) == burst.run_ends[-1]
    assert len(burst.topics) == len(burst.formats) == len(burst.run_ends)
    assert burst.run_ends == sorted(set(burst.run_ends))
    assert all(len(topic) <= name_bytes for topic in burst.topics)
    sizes = [end - start for start, end in zip(burst.starts, burst.ends, strict=True)]
    assert all(0 <= size <= SMALL.payload_bytes for size in sizes)


# -- the contract ----------------------------------------------------------------------------------------


@each_role
@some
@given(data=st.data())
def test_garbage_gives_events_or_one_closing(role: str, data: st.DataObject) -> None:
    noises = data.draw(st.lists(noise, max_size=12))
    check_events(role, feed(role, SMALL, [WIRES[role].handshake, *noises]))


@each_role
@some
@given(data=st.data())
def test_whole_equals_byte_by_byte(role: str, data: st.DataObject) -> None:
    sent = data.draw(inputs(role))
    dialect = ROLES[role].dialect
    whole = feed(role, SMALL, [sent])
    check_events(role, whole)
    for patient in (False, True):
        slow = feed(role, SMALL, one_by_one(sent), patient)
        check_events(role, slow)
        assert rows(slow.events, dialect) == rows(whole.events, dialect)


@each_role
@some
@given(data=st.data())
def test_whole_equals_any_two_parts(role: str, data: st.DataObject) -> None:
    sent = data.draw(inputs(role))
    dialect = ROLES[role].dialect
    whole = rows(feed(role, SMALL, [sent]).events, dialect)
    for cut in range(1, len(sent)):
        assert rows(feed(role, SMALL, in_two(sent, cut)).events, dialect) == whole


@each_role
@some
@given(data=st.data())
def test_what_is_kept_unfinished_is_bounded(role: str, data: st.DataObject) -> None:
    frame = HEADER_BYTES + WIRES[role].name_bytes(SMALL.topic_bytes) + SMALL.payload_bytes
    bound = max(frame, SMALL.line_bytes) + len(b"\r\n")
    begun = data.draw(inputs(role)) + data.draw(st.sampled_from([*WORDS, b"pub a ", b"pub a 24 ", b"a "]))
    filler = data.draw(st.sampled_from([b"x", b" ", b"\r", b"1", b"\xff"]))
    feeder = feed(role, SMALL, [begun, *[filler] * (2 * bound)])
    assert feeder.longest_kept <= bound


@each_role
def test_an_empty_block_is_nothing(role: str) -> None:
    received = ROLES[role].session(Terms(SMALL)).receive(b"", 0.0)
    assert (received.events, received.consumed) == ([], 0)


@each_role
def test_opening_closes_nothing_and_publishes_nothing(role: str) -> None:
    assert not any(isinstance(event, Closing | Burst) for event in ROLES[role].session(Terms(Limits())).open())


# -- limits are inclusive --------------------------------------------------------------------------------


def outcome(role: str, limits: Limits, frame: bytes) -> list[tuple[str | bytes, ...]]:
    """Whatever comes of it, the same comes of it byte by byte."""
    data = WIRES[role].handshake + frame
    found = rows(feed(role, limits, [data]).events, ROLES[role].dialect)
    assert rows(feed(role, limits, one_by_one(data)).events, ROLES[role].dialect) == found
    return found


def line_ends(frame: bytes) -> list[bytes]:
    return [frame, frame.removesuffix(b"\n") + b"\r\n"]


@each_publisher
@pytest.mark.parametrize("size", [1, 2, 9, 100])
def test_payload_limit(role: str, size: int) -> None:
    publish = WIRES[role].publish
    assert publish
    limits = Limits(payload_bytes=size)
    for frame in line_ends(publish(b"t", b"x" * size)):
        assert outcome(role, limits, frame) == [("message", b"t", b"x" * size)]
    for frame in line_ends(publish(b"t", b"x" * (size + 1))):
        assert outcome(role, limits, frame) == [("closed", b"limit")]


@each_publisher
@pytest.mark.parametrize("size", [1, 2, 9, 100])
def test_topic_limit(role: str, size: int) -> None:
    publish = WIRES[role].publish
    assert publish
    limits = Limits(topic_bytes=size)
    longest = b"t" * WIRES[role].name_bytes(size)
    for frame in line_ends(publish(longest, b"x")):
        assert outcome(role, limits, frame) == [("message", longest, b"x")]
    for frame in line_ends(publish(longest + b"t", b"x")):
        assert outcome(role, limits, frame) == [("closed", b"limit")]


@each_role
@pytest.mark.parametrize("size", [1, 2, 9, 100])
def test_line_limit(role: str, size: int) -> None:
    line = WIRES[role].line
    if line is None:
        pytest.skip("not a dialect of lines")
    limits = Limits(line_bytes=size)
    for frame in line_ends(line(b"#" * size)):
        assert [kind for kind, *_ in outcome(role, limits, frame)] == ["refused"]
    for frame in line_ends(line(b"#" * (size + 1))):
        assert outcome(role, limits, frame) == [("closed", b"limit")]


@each_subscriber
@pytest.mark.parametrize("size", [1, 2, 9, 100])
def test_subscription_limit(role: str, size: int) -> None:
    """A subscription that no topic can be long enough for is not taken."""
    subscribe = WIRES[role].subscribe
    assert subscribe
    limits = Limits(topic_bytes=size)
    longest = b"s" * WIRES[role].name_bytes(size)
    events = feed(role, limits, [subscribe(longest), subscribe(longest + b"s")]).events
    assert [isinstance(event, Subscribe) for event in events] == [True, False]
