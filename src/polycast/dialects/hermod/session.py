"""The dialect `hermod` ("simple pub/sub protocol"): a JSON header, directly followed by the payload.

    publisher -> broker    {"topic": T, "payload_size": N, "checksum": sha1}PAYLOAD
                           {"batch_type": "Count", "count": N}   {"batch_type": "Start"}   {"batch_type": "End"}
    broker -> publisher    {"status": "OK"} LF   {"status": "OK", "count": N} LF
                           {"status": "ERROR", "code": C, "message": M} LF
    subscriber -> broker   {"topics": [T, ...]}   {"status": "OK"}   {"status": "CLOSE"}
    broker -> subscriber   {"topic": T, "sequence": S, "payload_size": N, "checksum": sha1}PAYLOAD

One port is meant for publishers and one for subscribers; on either, each header says what it is. After a bad
header nobody knows where the next one begins, so the connection ends; a checksum that does not fit costs only
its message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from polycast.declare import setting
from polycast.dialects.base import Role, Session, Terms
from polycast.dialects.hermod.forms import FORM, NAME, OK, PacedForm, to_error, to_ok
from polycast.dialects.hermod.headers import (
    OPENING,
    UNSET,
    Header,
    HeaderEnd,
    HermodError,
    Kind,
    after_space,
    find_payload,
    kind_of,
    read_header,
    shown,
    to_code,
    to_natural,
    to_text,
    to_topic,
)
from polycast.dialects.hermod.intake import Intake
from polycast.dialects.hermod.scan import messages, sha1_of
from polycast.errors import LimitError, PeerError
from polycast.model import Block, Closing, Event, Exact, Received, Refused, Reply, Subscribe

NEEDS_THE_LOG = "%s needs the log, which this broker does not have; leave the key out"


@dataclass(frozen=True, slots=True)
class HermodSettings:
    require_checksum: bool = setting(False, "refuse messages whose checksum is empty, which means unchecked")


class State(Enum):
    SINGLE = auto()
    COUNTING = auto()
    STREAMING = auto()


class Batch:
    """Several messages that get one reply. A refused one is read to its end, and none of it is published."""

    def __init__(self, expected: int = sys.maxsize, header: Header | None = None) -> None:
        self.expected = expected
        self.accepted = 0
        self.refused = header is not None and header.batch_id is not UNSET
        self.error = (501, NEEDS_THE_LOG % "batch_id") if self.refused else None

    def reply(self) -> bytes:
        return to_error(*self.error, self.accepted) if self.error else to_ok(self.accepted)


class HermodSession(Session):
    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        settings: HermodSettings = terms.tables.get(NAME) or HermodSettings()
        self._unchecked = not settings.require_checksum
        self._header_end = HeaderEnd()
        self._need = 0
        self._ended = False
        self._state = State.SINGLE
        self._batch = Batch()
        self._topics: dict[str, None] = {}
        """What is subscribed to in the form that all share."""
        self._paced: PacedForm | None = None

    @property
    def held_bytes(self) -> int:  # type: ignore[override]
        return self._paced.held_bytes if self._paced else 0

    def receive(self, block: Block, now: float) -> Received:
        if len(block) < self._need:
            return Received([], 0, self._need)
        intake = Intake(block)
        position = self._need = 0
        try:
            while not intake.closed:
                position = self._take_plain(block, position, intake)
                position = after_space(block, position)
                after, self._need = self._read_frame(block, position, intake)
                if after == position:
                    self._release(intake)
                    return intake.close(position, self._need)
                position = after
        except PeerError as error:
            intake.add(Closing(error))
        return intake.close(len(block))

    def end(self, rest: Block, now: float) -> list[Event]:
        """A payload with a wrong checksum may have waited for one more byte; none will come."""
        self._ended = True
        self._need = 0
        return self.receive(rest, now).events

    def farewell(self, error: PeerError | None) -> bytes:
        accepted = None if self._state is State.SINGLE else self._batch.accepted
        if error is None:
            return to_error(503, "the broker is shutting down; connect again later", accepted)
        return to_error(to_code(error), str(error), accepted)

    # -- publications ------------------------------------------------------------------------------------

    def _take_plain(self, block: Block, position: int, intake: Intake) -> int:
        if self._header_end.begun or self._batch.refused:
            return position
        limits = self._limits
        found = messages(
            block, position, self._batch.expected, limits.topic_bytes, limits.payload_bytes, limits.line_bytes,
            self._unchecked,
        )  # fmt: skip
        if count := intake.columns.extend(found):
            self._accept(count, intake)
        return found[-1]

    def _read_frame(self, block: Block, position: int, intake: Intake) -> tuple[int, int]:
        """The position after a header and what belongs to it; or the same one, and how long it will be."""
        if position == len(block):
            return position, 0
        if block[position] != OPENING:
            found = bytes(block[position : position + 1])
            raise HermodError(400, f"a header begins with '{{', not with {found!r}; is payload_size right?")
        start = self._header_end.find(block, position, self._limits.line_bytes)
        if not start:
            return position, 0
        header = read_header(block, position, start)
        kind = kind_of(header)
        if kind is Kind.MESSAGE:
            return self._read_message(header, block, position, start, intake)
        action = ACTIONS.get((self._state, kind))
        if action is None:
            due = "End" if self._state is State.STREAMING else f"{self._batch.expected:,} more messages"
            raise HermodError(409, f"{header.batch_type} inside a batch, expected {due} first")
        action(self, header, intake)
        return start, 0

    def _read_message(
        self, header: Header, block: Block, position: int, start: int, intake: Intake
    ) -> tuple[int, int]:
        topic = to_topic(header.topic, "topic", self._limits).encode()
        size = to_natural(header.payload_size, "payload_size")
        checksum = to_text(header.checksum, "checksum").lower().encode()
        if size > self._limits.payload_bytes:
            raise LimitError("a payload", size, self._limits.payload_bytes, "limits.payload_bytes")
        end = start + size
        if end > len(block):
            return position, end - position
        begin, told = find_payload(block, start, size, checksum)
        if told > len(block) and not self._ended:
            return position, told - position
        if begin < 0:
            found = sha1_of(memoryview(block)[start:end]).decode()
            self._refuse(422, f"the payload's sha1 is {found}, its header says {shown(header.checksum)}", intake)
            return end, 0
        if not checksum and not self._unchecked:
            self._refuse(422, "a checksum is required here (hermod.require_checksum)", intake)
            return end, 0
        if not self._batch.refused:
            intake.columns.add(topic, begin, begin + size, checksum)
        self._accept(1, intake)
        return begin + size, 0

    def _accept(self, count: int, intake: Intake) -> None:
        if self._state is State.SINGLE:
            intake.reply(OK * count)
            return
        if not self._batch.refused:
            self._batch.accepted += count
        self._count_down(count, intake)

    def _refuse(self, code: int, message: str, intake: Intake) -> None:
        """The connection stays. In a batch, the first error is its reply."""
        if self._state is State.SINGLE:
            intake.reply(to_error(code, message))
            return
        self._batch.error = self._batch.error or (code, message)
        self._count_down(1, intake)

    def _count_down(self, count: int, intake: Intake) -> None:
        self._batch.expected -= count
        if not self._batch.expected:
            self._end_batch(None, intake)

    def _begin_count(self, header: Header, intake: Intake) -> None:
        self._batch = Batch(to_natural(header.count, "count"), header)
        self._state = State.COUNTING
        self._count_down(0, intake)

    def _begin_stream(self, header: Header, intake: Intake) -> None:
        self._state = State.STREAMING
        self._batch = Batch(header=header)

    def _end_batch(self, header: Header | None, intake: Intake) -> None:
        intake.reply(self._batch.reply())
        self._state = State.SINGLE
        self._batch = Batch()

    # -- subscriptions -----------------------------------------------------------------------------------

    def _subscribe(self, header: Header, intake: Intake) -> None:
        topics = self._to_topics(header.topics)
        if header.from_ is not UNSET:
            intake.reply(to_error(501, NEEDS_THE_LOG % "from"))
            return
        self._topics |= dict.fromkeys(topics)
        self._pace(header)
        for topic in self._topics if self._paced else topics:
            intake.add(Subscribe(Exact(topic), self._paced or FORM))
        if self._paced:
            self._topics = {}
        intake.add(Reply(OK))

    def _to_topics(self, value: Any) -> list[str]:
        if not isinstance(value, list):
            raise HermodError(400, f"topics is {shown(value)}, expected a list of strings")
        return [to_topic(topic, "one of the topics", self._limits) for topic in value]

    def _pace(self, header: Header) -> None:
        """`window` and `batch` hold for all topics of the connection; those of a later handshake replace them."""
        window = None if header.window is UNSET else to_natural(header.window, "window")
        batch = None if header.batch is UNSET else to_natural(header.batch, "batch")
        if window is None and batch is None:
            return
        self._paced = self._paced or PacedForm()
        self._paced.set(window, batch)

    def _handle_status(self, header: Header, intake: Intake) -> None:
        status = to_text(header.status, "status").upper()
        if status == "CLOSE":
            intake.add(Closing())
        elif status == "ERROR":
            intake.add(Refused("ERROR of a client"))
        elif status == "OK":
            self._acknowledge(header)
        else:
            raise HermodError(400, f"status is {shown(header.status)}, expected OK, CLOSE or ERROR")

    def _acknowledge(self, header: Header) -> None:
        """Who asked for no window need not say OK, but may."""
        if header.sequence is not UNSET:
            topic = to_text(header.topic, "topic").encode()
            sequence = to_natural(header.sequence, "sequence")
            if self._paced:
                self._paced.acknowledge_up_to(topic, sequence)
        elif self._paced:
            self._paced.acknowledge()

    def _release(self, intake: Intake) -> None:
        """What the peer has made room for, at once for all that it said in one block."""
        if self._paced and self._paced.held_bytes and (released := self._paced.release()):
            intake.add(Reply(released))


Action = Callable[[HermodSession, Header, Intake], None]

ACTIONS: dict[tuple[State, Kind], Action] = {
    (State.SINGLE, Kind.COUNT): HermodSession._begin_count,
    (State.SINGLE, Kind.START): HermodSession._begin_stream,
    (State.SINGLE, Kind.END): HermodSession._end_batch,
    (State.STREAMING, Kind.END): HermodSession._end_batch,
    **{(state, Kind.TOPICS): HermodSession._subscribe for state in State},
    **{(state, Kind.STATUS): HermodSession._handle_status for state in State},
}
"""What headers without a payload do. Those that are not here have no place there."""

ROLES = (
    Role("hermod.pub", NAME, HermodSession, default="tcp://127.0.0.1:7878"),
    Role("hermod.sub", NAME, HermodSession, default="tcp://127.0.0.1:8787"),
)
