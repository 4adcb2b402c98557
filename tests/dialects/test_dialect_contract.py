"""The contract of a session, for every role of every dialect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import Feeder, bursts, feed, in_two, merged, one_by_one, rows
from dialects.wires import PUBLISHERS, SUBSCRIBERS, WIRES, Wire
from kit.http import request
from polycast.dialects.registry import ROLES
from polycast.dialects.session import SessionContext
from polycast.model import Burst, Closing, Limits, Subscribe
from vectors import Row

SMALL = {role: Limits(payload_bytes=24, topic_bytes=5, line_bytes=wire.line_bytes) for role, wire in WIRES.items()}
HEADER_BYTES = 32
"""An upper bound of a frame's header without its topic, if no limit of lines or headers applies."""

each_role = pytest.mark.parametrize("role", ROLES)
each_publisher = pytest.mark.parametrize("role", PUBLISHERS)
each_subscriber = pytest.mark.parametrize("role", SUBSCRIBERS)


def test_every_role_has_a_wire() -> None:
    assert set(WIRES) == set(ROLES)


def test_role_names_begin_with_their_dialect() -> None:
    assert all(name == role.listener for name, role in ROLES.items())
    assert all(name.split(".")[0] == role.dialect for name, role in ROLES.items())


# -- input: valid frames, invalid frames, and noise ------------------------------------------------------

WORDS = (b" ", b"  ", b"!", b"\n", b"\r\n", b"\r", b"0", b"7")
topics = st.text("ab/é", min_size=1, max_size=6).map(str.encode)
payloads = st.binary(max_size=28)


def noise(wire: Wire) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=12), st.sampled_from(WORDS + wire.words))


def frames(wire: Wire) -> st.SearchStrategy[bytes]:
    kinds: list[st.SearchStrategy[bytes]] = [noise(wire), st.just(wire.later)]
    if wire.publish:
        kinds += [st.builds(wire.publish, topics, payloads)] * 3
    if wire.subscribe:
        kinds.append(st.builds(wire.subscribe, topics))
    return st.one_of(kinds)


def inputs(role: str) -> st.SearchStrategy[bytes]:
    wire = WIRES[role]
    return st.lists(frames(wire), max_size=8).map(lambda parts: wire.handshake + b"".join(parts))


def meaning(role: str, feeder: Feeder) -> list[Row]:
    return merged(rows(feeder.events, ROLES[role].dialect))


def check_events(role: str, feeder: Feeder) -> None:
    assert not any(isinstance(event, Closing) for event in feeder.events[:-1])
    for burst in bursts(feeder.events):
        check_burst(burst, WIRES[role].name_bytes(SMALL[role].topic_bytes), SMALL[role].payload_bytes)


def check_burst(burst: Burst, name_bytes: int, payload_bytes: int) -> None:
    assert len(burst) > 0
    assert len(burst.starts) == len(burst.ends) == burst.run_ends[-1]
    assert len(burst.topics) == len(burst.formats) == len(burst.run_ends)
    assert burst.run_ends == sorted(set(burst.run_ends))
    assert all(len(topic) <= name_bytes for topic in burst.topics)
    sizes = [end - start for start, end in zip(burst.starts, burst.ends, strict=True)]
    assert all(0 <= size <= payload_bytes for size in sizes)


# -- the contract ----------------------------------------------------------------------------------------


@each_role
@given(data=st.data())
def test_garbage_gives_events_or_one_closing(role: str, data: st.DataObject) -> None:
    noises = data.draw(st.lists(noise(WIRES[role]), max_size=12))
    check_events(role, feed(role, SMALL[role], [WIRES[role].handshake, *noises]))


@each_role
@given(data=st.data(), has_log=st.booleans())
def test_whole_equals_byte_by_byte(role: str, data: st.DataObject, has_log: bool) -> None:
    sent = data.draw(inputs(role))
    whole = feed(role, SMALL[role], [sent], has_log=has_log)
    check_events(role, whole)
    for patient in (False, True):
        slow = feed(role, SMALL[role], one_by_one(sent), patient, has_log=has_log)
        check_events(role, slow)
        assert meaning(role, slow) == meaning(role, whole)


@each_role
@given(data=st.data(), has_log=st.booleans())
def test_whole_equals_any_two_parts(role: str, data: st.DataObject, has_log: bool) -> None:
    sent = data.draw(inputs(role))
    whole = meaning(role, feed(role, SMALL[role], [sent], has_log=has_log))
    for cut in range(1, len(sent)):
        assert meaning(role, feed(role, SMALL[role], in_two(sent, cut), has_log=has_log)) == whole


@each_role
@given(data=st.data())
def test_unfinished_input_is_bounded(role: str, data: st.DataObject) -> None:
    limits = SMALL[role]
    header = max(HEADER_BYTES + WIRES[role].name_bytes(limits.topic_bytes), limits.line_bytes)
    bound = header + limits.payload_bytes + len(b"\r\n")
    begun = data.draw(inputs(role)) + data.draw(st.sampled_from(WORDS + WIRES[role].words))
    filler = data.draw(st.sampled_from([b"x", b" ", b"\r", b"1", b"\xff"]))
    feeder = feed(role, limits, [begun, *[filler] * (2 * bound)])
    assert feeder.longest_buffer <= bound


@each_role
def test_an_empty_block_is_nothing(role: str) -> None:
    received = ROLES[role].session(SessionContext(SMALL[role])).receive(b"", 0.0)
    assert (received.events, received.consumed) == ([], 0)


@each_role
def test_opening_closes_nothing_and_publishes_nothing(role: str) -> None:
    assert not any(
        isinstance(event, Closing | Burst) for event in ROLES[role].session(SessionContext(Limits())).open()
    )


BROWSERS = {
    "POST": request("POST", "/"),
    "sub": request("sub", "/x"),
    "P": request("P", "/"),
    "PRI": request("PRI", "*", version="2.0"),
    "TLS": b"\x16\x03\x01\n",
}


@pytest.mark.parametrize("role", [role for role in ROLES if role != "http"])
@pytest.mark.parametrize("line", BROWSERS.values(), ids=BROWSERS)
def test_input_of_a_browser_closes_the_connection(role: str, line: bytes) -> None:
    """With any bytes behind it: a web page chooses the body of a request, and a part of a TLS hello."""
    wire = WIRES[role]
    published = wire.publish(b"a", b"x") if wire.publish else b""
    sent = line + wire.handshake + published + wire.later
    for parts in ([sent], one_by_one(sent), *(in_two(sent, cut) for cut in range(1, len(sent)))):
        [closing] = feed(role, Limits(), parts).events
        assert isinstance(closing, Closing) and closing.error


# -- limits are inclusive --------------------------------------------------------------------------------


def outcome(role: str, limits: Limits, frame: bytes) -> list[Row]:
    """The events are the same byte by byte."""
    found = after_handshake(role, limits, [frame])
    assert after_handshake(role, limits, one_by_one(frame)) == found
    return found


def after_handshake(role: str, limits: Limits, parts: list[bytes]) -> list[Row]:
    feeder = feed(role, limits, [WIRES[role].handshake])
    feeder.events.clear()
    for part in parts:
        feeder.give(part)
    return meaning(role, feeder)


def accepted(role: str, topic: bytes, payload: bytes) -> list[Row]:
    reply = WIRES[role].reply
    return [("message", topic, payload), *([("reply", reply)] if reply else [])]


def line_ends(frame: bytes) -> list[bytes]:
    return [frame, frame.removesuffix(b"\n") + b"\r\n"] if frame.endswith(b"\n") else [frame]


@each_publisher
@pytest.mark.parametrize("size", [1, 2, 9, 100])
def test_payload_limit(role: str, size: int) -> None:
    publish = WIRES[role].publish
    assert publish
    limits = Limits(payload_bytes=size)
    for frame in line_ends(publish(b"t", b"x" * size)):
        assert outcome(role, limits, frame) == accepted(role, b"t", b"x" * size)
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
        assert outcome(role, limits, frame) == accepted(role, longest, b"x")
    topicless = WIRES[role].topicless
    too_long = accepted(role, b"", topicless(longest + b"t", b"x")) if topicless else [("closed", b"limit")]
    for frame in line_ends(publish(longest + b"t", b"x")):
        assert outcome(role, limits, frame) == too_long


@pytest.mark.parametrize("role", [role for role, wire in WIRES.items() if wire.line])
@pytest.mark.parametrize("size", [1, 2, 9, 100])
def test_line_limit(role: str, size: int) -> None:
    line = WIRES[role].line
    assert line
    limits = Limits(line_bytes=size)
    for frame in line_ends(line(b"#" * size)):
        assert [kind for kind, *_ in outcome(role, limits, frame)] == ["refused"]
    for frame in line_ends(line(b"#" * (size + 1))):
        assert outcome(role, limits, frame) == [("closed", b"limit")]


@each_subscriber
@pytest.mark.parametrize("size", [1, 2, 9, 100])
def test_subscription_limit(role: str, size: int) -> None:
    """A subscription longer than any topic is refused."""
    subscribe = WIRES[role].subscribe
    assert subscribe
    limits = Limits(topic_bytes=size)
    longest = b"s" * WIRES[role].name_bytes(size)
    parts = [WIRES[role].handshake, subscribe(longest), subscribe(longest + b"s")]
    events = feed(role, limits, parts).events
    texts = [event.pattern.value for event in events if isinstance(event, Subscribe)]
    assert [text for text in texts if text.startswith("s")] == [longest.decode()]
