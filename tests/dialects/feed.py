"""Feeds a session as a connection does: what was not consumed comes again, with more behind it."""

from __future__ import annotations

from collections.abc import Iterable

from polycast.dialects.base import Session, Terms
from polycast.dialects.registry import ROLES
from polycast.model import (
    Answer,
    Burst,
    Closing,
    Event,
    Limits,
    Refused,
    Reply,
    Request,
    Subscribe,
    Unsubscribe,
    Upgrade,
)
from vectors import Row

NOW = 1_700_000_000.5


class Feeder:
    """`patient` holds bytes back until a frame is as long as the session said that it will be."""

    def __init__(self, session: Session, patient: bool = False) -> None:
        self._session = session
        self._patient = patient
        self._need = 0
        self.events: list[Event] = []
        self.kept = b""
        self.longest_kept = 0

    @property
    def closed(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Closing)

    def give(self, part: bytes) -> None:
        if self.closed:
            return
        self.kept += part
        if self._patient and len(self.kept) < self._need:
            return
        received = self._session.receive(self.kept, NOW)
        assert 0 <= received.consumed <= len(self.kept)
        self.kept = self.kept[received.consumed :]
        self._need = received.need
        assert self._need == 0 or self._need > len(self.kept), "it waits for bytes that are there"
        self.events += received.events
        self.longest_kept = max(self.longest_kept, len(self.kept))


def feed(role: str, limits: Limits, parts: Iterable[bytes], patient: bool = False) -> Feeder:
    feeder = Feeder(ROLES[role].session(Terms(limits)), patient)
    for part in parts:
        feeder.give(part)
    return feeder


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def in_two(data: bytes, cut: int) -> tuple[bytes, bytes]:
    return data[:cut], data[cut:]


def rows(events: Iterable[Event], dialect: str) -> list[Row]:
    """Events as the vectors write them: message by message, however they came in bursts."""
    return [row for event in events for row in _rows_of(event, dialect)]


def _rows_of(event: Event, dialect: str) -> list[Row]:
    match event:
        case Burst():
            assert event.dialect == dialect
            return burst_rows(event)
        case Subscribe(pattern, form):
            assert form.name == dialect
            return [("subscribe", str(pattern).encode())]
        case Unsubscribe(pattern):
            return [("unsubscribe", str(pattern).encode())]
        case Reply(data):
            return [("reply", data)]
        case Refused(reason, count):
            return [("refused", reason.encode())] * count
        case Request(route, _, body):
            return [("request", route.encode(), body.payload, body.format.encode())]
        case Answer(number, success, body):
            kind = "success" if success else "fail"
            return [(kind, str(number).encode(), body.payload, body.format.encode())]
        case Upgrade(dialect, _):
            return [("upgrade", dialect.encode())]
        case Closing(error):
            return [("closed", error.kind.encode() if error else b"")]


def burst_rows(burst: Burst) -> list[Row]:
    """The hub refuses topics that are not UTF-8; no session has to."""
    found: list[Row] = []
    for run, first, last in burst.runs():
        topic = burst.topics[run]
        for start, end in zip(burst.starts[first:last], burst.ends[first:last], strict=True):
            payload = bytes(burst.block[start:end])
            found.append(("message", topic, payload) if _is_utf8(topic) else ("refused", b"topic not UTF-8"))
    return found


def _is_utf8(topic: bytes) -> bool:
    return topic.decode(errors="replace").encode() == topic
