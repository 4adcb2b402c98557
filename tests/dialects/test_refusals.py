"""Many bad lines or frames in one read are one event with a count."""

from __future__ import annotations

import pytest

from dialects.feed import Feeder, one_by_one, rows
from polycast.dialects.registry import ROLES
from polycast.dialects.session import SessionContext
from polycast.model import Limits, Refused

MANY = 1000
UNKNOWN, BAD_LINE = "unknown command", "not 'CHANNEL MESSAGE'"


def feeder_of(role: str, *parts: bytes, limits: Limits | None = None) -> Feeder:
    feeder = Feeder(ROLES[role].session(SessionContext(limits or Limits())))
    for part in parts:
        feeder.give(part)
    return feeder


@pytest.mark.parametrize(
    ("role", "frame", "reason"),
    [
        ("simplest", b"\n", UNKNOWN),
        ("simplest", b"\r\n", UNKNOWN),
        ("simplest", b"x\n", UNKNOWN),
        ("simplest", b"publish\n", UNKNOWN),
        ("simplest", b"sub\rx\n", UNKNOWN),
        ("simplest", b"x" * 100 + b"\n", UNKNOWN),
        ("simplest.peer", b"\n", UNKNOWN),
        ("fanout.controller", b"\n", BAD_LINE),
        ("fanout.controller", b"x\r\n", BAD_LINE),
        ("fanout.controller", b" x\n", BAD_LINE),
        ("fanout.controller", b"! x\n", BAD_LINE),
        ("fanout.controller", b"x" * 100 + b"\n", BAD_LINE),
        ("fanout.client", b"x\n", UNKNOWN),
        ("fanout.client", b" subscribe \n", UNKNOWN),
        ("fanout.client", b"x\r\n\n", UNKNOWN),
        ("ubre", b"{}\n", "unknown message"),
        ("hermod.pub", b'{"status": "ERROR"}', "ERROR of a client"),
    ],
)
def test_consecutive_refusals_are_one_event(role: str, frame: bytes, reason: str) -> None:
    events = feeder_of(role, frame * MANY).events
    [refused] = [event for event in events if isinstance(event, Refused)]
    assert (refused.reason, refused.count) == (reason, MANY)


@pytest.mark.parametrize(
    ("role", "data"),
    [
        ("simplest", b"\n\nsub a\nx\npub a 1 b\n\r\nunsub\npub\n"),
        ("simplest", b"\nsub\r\n\npublish\nsubs\nunsub \npub\r\nx\n"),
        ("fanout.controller", b"\n\na b\n x\n!\na! b\nc\r\na b\r\n"),
        ("fanout.client", b"\r\n  \nx\r\n y\ntimes\n time\nx\n  subscribe b\r\n \r\n"),
        ("fanout.client", b"\nx\nsubscribe a\nx\n\nx\nunsubscribe a\n"),
    ],
)
def test_the_order_of_events_and_the_counts_are_those_of_single_bytes(role: str, data: bytes) -> None:
    dialect = role.partition(".")[0]
    assert rows(feeder_of(role, data).events, dialect) == rows(feeder_of(role, *one_by_one(data)).events, dialect)


@pytest.mark.parametrize("role", ["simplest", "fanout.controller"])
def test_a_line_limit_below_the_length_of_a_short_line(role: str) -> None:
    limits = Limits(line_bytes=5)
    assert feeder_of(role, b"12345\n" * MANY, limits=limits).events[0] == Refused(
        UNKNOWN if role == "simplest" else BAD_LINE, MANY
    )
    assert feeder_of(role, b"123456\n", limits=limits).closed
