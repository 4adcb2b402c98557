"""Every vector, fed whole, byte by byte, cut in two at every position, and with a frame behind it.

One test for each file of vectors: pytest takes longer for a test than most vectors do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import TypeVar

import pytest

from dialects.feed import Feeder, bursts, feed, in_two, merged, number, one_by_one, rows
from dialects.wires import DELIVERED, READERS, SEEN, WIRES, delivered, numbered
from polycast.dialects.fanout import session as fanout
from polycast.dialects.hermod import encoders as hermod_encoders
from polycast.dialects.nanomsg import encoders as nanomsg_encoders
from polycast.dialects.registry import ROLES
from polycast.dialects.session import SessionContext
from polycast.dialects.simplest import session as simplest
from polycast.dialects.ubre import encoders as ubre_encoders
from polycast.model import Burst, Closing, Encoder, Event, Format, Limits
from vectors import InputVector, OutputVector, Row, input_vectors, output_vectors

ENCODERS: dict[str, Encoder] = {
    encoder.name: encoder
    for encoder in (simplest.ENCODER, fanout.ENCODER, hermod_encoders.ENCODER, ubre_encoders.JSON_LINES)
} | {"nanomsg": nanomsg_encoders.encoder_of("tcp", "|")}
INPUTS = input_vectors()
OUTPUTS = output_vectors()

V = TypeVar("V", InputVector, OutputVector)
Test = Callable[..., None]


def for_each(vectors: Iterable[V]) -> Callable[[Test], Test]:
    """Turns a test of one vector into a test of each file; a failure names its vector."""
    files: dict[str, list[V]] = {}
    for vector in vectors:
        files.setdefault(vector.id.partition(":")[0], []).append(vector)

    def decorate(test: Test) -> Test:
        def test_file(file: str) -> None:
            for vector in files[file]:
                try:
                    test(vector)
                except BaseException as error:
                    error.add_note(f"vector {vector.id}")
                    raise

        test_file.__doc__ = test.__doc__
        return pytest.mark.parametrize("file", files)(test_file)

    return decorate


each_input = for_each(INPUTS)
each_output = for_each(OUTPUTS)


def fed(vector: InputVector, parts: Iterable[bytes], patient: bool = False) -> Feeder:
    return feed(vector.role, Limits(**vector.limits), parts, patient, vector.settings, vector.has_log)


def events_of(vector: InputVector, parts: Iterable[bytes], patient: bool = False) -> list[Event]:
    opening = ROLES[vector.role].session(SessionContext(Limits(**vector.limits))).open() if vector.opening else []
    return opening + fed(vector, parts, patient).events


def rows_of(vector: InputVector, parts: Iterable[bytes], patient: bool = False) -> list[Row]:
    return merged(rows(events_of(vector, parts, patient), ROLES[vector.role].dialect))


@each_input
def test_whole(vector: InputVector) -> None:
    assert rows_of(vector, [vector.input]) == merged(vector.events)


@each_input
def test_byte_by_byte(vector: InputVector) -> None:
    for patient in (False, True):
        assert rows_of(vector, one_by_one(vector.input), patient) == merged(vector.events), f"{patient=}"


@each_input
def test_cut_in_two_anywhere(vector: InputVector) -> None:
    for patient, cut in product((False, True), range(len(vector.input) + 1)):
        rows = rows_of(vector, in_two(vector.input, cut), patient)
        assert rows == merged(vector.events), f"cut at {cut}, {patient=}"


@for_each(vector for vector in INPUTS if not vector.unfinished)
def test_with_a_frame_behind_it(vector: InputVector) -> None:
    more, events = _frame_behind(vector)
    data = vector.input + more
    expected = merged([*vector.events, *(() if vector.closes else events)])
    for cut in range(len(data) + 1):
        assert rows_of(vector, in_two(data, cut)) == expected, f"cut at {cut}"


def _frame_behind(vector: InputVector) -> tuple[bytes, tuple[Row, ...]]:
    """Repeats the vector's own frame: its limits may be too small for another one."""
    wire = WIRES[vector.role]
    return (vector.input, vector.events) if vector.limits else (wire.later, wire.later_events)


@each_input
def test_a_block_may_be_a_bytearray(vector: InputVector) -> None:
    feeder = fed(vector, [])
    opening = feeder.session.open() if vector.opening else []
    feeder.buffered = bytearray()
    feeder.give(vector.input)
    assert merged(rows(opening + feeder.events, ROLES[vector.role].dialect)) == merged(vector.events)


@each_input
def test_events_at_the_end(vector: InputVector) -> None:
    for parts in ([vector.input], one_by_one(vector.input)):
        feeder = fed(vector, parts)
        feeder.events = [event for event in feeder.events if isinstance(event, Closing)]
        feeder.end()
        if not vector.closes:
            assert merged(rows(feeder.events, ROLES[vector.role].dialect)) == merged(vector.at_end)


@for_each(vector for vector in INPUTS if vector.closing_bytes)
def test_closing_bytes(vector: InputVector) -> None:
    assert vector.closing_bytes in fed(vector, [vector.input]).closing_bytes()


@for_each(vector for vector in INPUTS if ROLES[vector.role].dialect in DELIVERED)
def test_frames_are_passed_through_in_the_same_dialect(vector: InputVector) -> None:
    """The encoded bytes are the same with and without pass-through."""
    dialect = ROLES[vector.role].dialect
    sent = [(_bytes(row[1]), _bytes(row[2])) for row in vector.events if row[0] == "message"]
    expected = delivered(dialect, numbered(sent))
    for cut in range(len(vector.input) + 1):
        published = bursts(events_of(vector, in_two(vector.input, cut)))
        number(published)
        assert b"".join(_encode(dialect, burst) for burst in published) == expected, f"cut at {cut}"


def _bytes(field: str | bytes) -> bytes:
    assert isinstance(field, bytes)
    return field


def _encode(dialect: str, burst: Burst) -> bytes:
    """Only topics that are UTF-8 reach an encoder."""
    readable = [(first, last) for run, first, last in burst.runs() if _is_utf8(burst.topics[run])]
    return b"".join(ENCODERS[dialect].encode(burst, readable).blocks) if readable else b""


def _is_utf8(topic: bytes) -> bool:
    return topic.decode(errors="replace").encode() == topic


@each_output
def test_output(vector: OutputVector) -> None:
    burst = Burst.of("another", [(topic, payload, Format.BYTES) for topic, payload in vector.messages])
    number([burst])
    encoded = ENCODERS[vector.encoder].encode(burst, [(0, len(burst))])
    assert b"".join(encoded.blocks) == vector.output
    assert encoded.size == len(vector.output)
    assert encoded.lossy == vector.lossy


@each_output
def test_output_is_read_by_a_stranger(vector: OutputVector) -> None:
    expected = [SEEN[vector.encoder](*message) for message in vector.messages]
    assert READERS[vector.encoder](vector.output) == expected


def test_every_role_has_vectors() -> None:
    assert {vector.role for vector in INPUTS} == set(ROLES)


def test_every_dialect_has_vectors_both_ways() -> None:
    dialects = {role.dialect for role in ROLES.values()}
    assert {ROLES[vector.role].dialect for vector in INPUTS} == dialects
    assert {vector.encoder for vector in OUTPUTS} == dialects - {"http"}  # which carries no messages itself


def test_names_are_unique() -> None:
    ids = [vector.id for vector in INPUTS] + [vector.id for vector in OUTPUTS]
    assert len(set(ids)) == len(ids)
