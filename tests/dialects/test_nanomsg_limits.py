"""Limits of `nanomsg` on every transport: the error names the size, the limit and the setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from dialects.feed import Feeder, rows
from kit.nanomsg import PUB, message, typed
from kit.websocket import BINARY, frame
from polycast.dialects.nanomsg.session import SubSession, SubWebSocketSession
from polycast.dialects.nanomsg.settings import NanomsgSettings
from polycast.dialects.session import Session, SessionContext
from polycast.errors import LimitError
from polycast.model import Closing, Limits

LIMITS = Limits(topic_bytes=5, payload_bytes=40)
NONE = Limits(2**80, 2**80, 2**80)
HUGE = NanomsgSettings(message_bytes=2**80)


class Way(NamedTuple):
    scheme: str
    session: type[Session]
    head: bytes
    write: Callable[[bytes], bytes]

    def fed(self, *bodies: bytes, limits: Limits = LIMITS, own: NanomsgSettings | None = None) -> Feeder:
        feeder = Feeder(self.session(SessionContext(limits, self.scheme, tables={"nanomsg": own})))
        feeder.give(self.head + b"".join(map(self.write, bodies)))
        return feeder


WAYS = [
    Way("tcp", SubSession, PUB, message),
    Way("ipc", SubSession, PUB, typed),
    Way("ws", SubWebSocketSession, b"", lambda body: frame(BINARY, body)),
]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.scheme)


def error_of(feeder: Feeder) -> str:
    last = feeder.events[-1]
    assert isinstance(last, Closing) and isinstance(last.error, LimitError)
    return str(last.error)


@each_way
@pytest.mark.parametrize(
    ("body", "size"), [(b"abc|" + b"x" * 41, 41), (b"x" * 42, 42), (b"sixsix|" + b"x" * 38, 45)]
)
def test_a_payload_is_measured_without_its_topic(way: Way, body: bytes, size: int) -> None:
    expected = f"a payload of {size} exceeds the limit of 40; raise limits.payload_bytes to accept it"
    assert error_of(way.fed(b"a|1", body)) == expected


@each_way
def test_a_body_that_is_too_long_for_any_topic_is_measured_as_a_whole(way: Way) -> None:
    expected = "a message of 47 exceeds the limit of 46; raise limits.payload_bytes to accept it"
    assert error_of(way.fed(b"x" * 47)) == expected


@each_way
def test_a_message_has_a_limit_of_its_own(way: Way) -> None:
    expected = "a message of 4 exceeds the limit of 3; raise nanomsg.message_bytes to accept it"
    assert error_of(way.fed(b"a|1", b"a|12", own=NanomsgSettings(message_bytes=3))) == expected


@each_way
def test_limits_that_no_machine_has_are_no_trouble(way: Way) -> None:
    found = way.fed(b"a|1", limits=NONE, own=HUGE)
    assert rows(found.events, "nanomsg") == [("message", b"a", b"1")]


@pytest.mark.parametrize("size", [2**62, 2**63 - 1, 2**63, 2**64 - 1])
def test_sizes_that_no_machine_has_are_refused_whatever_the_limit(size: int) -> None:
    feeder = Feeder(SubSession(SessionContext(NONE, tables={"nanomsg": HUGE})))
    feeder.give(PUB + size.to_bytes(8, "big"))
    assert error_of(feeder).startswith(f"a message of {size:,} exceeds")
