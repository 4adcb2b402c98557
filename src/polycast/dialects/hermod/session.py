"""The dialect `hermod` ("simple pub/sub protocol"): a JSON header, directly followed by the payload.

    publisher -> broker    {"topic": T, "payload_size": N, "checksum": sha1}PAYLOAD
                           {"batch_type": "Count", "count": N}   {"batch_type": "Start"}   {"batch_type": "End"}
    broker -> publisher    {"status": "OK"} LF   {"status": "OK", "count": N} LF
                           {"status": "ERROR", "code": C, "message": M} LF
    subscriber -> broker   {"topics": [T, ...]}   {"status": "OK"}   {"status": "CLOSE"}
    broker -> subscriber   {"status": "OK"} LF, to each `topics`
                           {"topic": T, "sequence": S, "payload_size": N, "checksum": sha1}PAYLOAD

One port is meant for publishers and one for subscribers; on either, each header says what it is. After a bad
header nobody knows where the next one begins, so the connection ends; a checksum that does not fit costs only
its message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from polycast.declare import setting
from polycast.dialects.base import Role, Session, Terms
from polycast.dialects.hermod.batches import NEEDS_THE_LOG, NEEDS_THE_LOG_HERE, Batch, State
from polycast.dialects.hermod.forms import FORM, NAME, OK, PacedForm, to_error
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
    shown_number,
    to_code,
    to_natural,
    to_size,
    to_text,
    to_topic,
)
from polycast.dialects.hermod.intake import Intake
from polycast.dialects.hermod.scan import messages, sha1_of
from polycast.errors import PeerError
from polycast.model import Block, Closing, Event, Exact, Received, Refused, Reply, Subscribe

ERROR_CHARACTERS = 140
"""How much of a client's words goes to the log."""


@dataclass(frozen=True, slots=True)
class HermodSettings:
    require_checksum: bool = setting(False, "refuse messages whose checksum is empty, which means unchecked")


class HermodSession(Session):
    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        settings: HermodSettings = terms.tables.get(NAME) or HermodSettings()
        self._unchecked = not settings.require_checksum
        self._scan_limits = (
            min(terms.limits.topic_bytes, sys.maxsize),
            min(terms.limits.payload_bytes, sys.maxsize),
            min(terms.limits.line_bytes, sys.maxsize),
        )
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

    def close(self) -> None:
        if self._paced:
            self._paced.close()

    def farewell(self, error: PeerError | None) -> bytes:
        accepted = None if self._state is State.SINGLE else self._batch.accepted
        if error is None:
            return to_error(503, "the broker is shutting down; connect again later", accepted)
        return to_error(to_code(error), str(error), accepted)

    # -- publications ------------------------------------------------------------------------------------

    def _take_plain(self, block: Block, position: int, intake: Intake) -> int:
        if self._header_end.begun or self._batch.refused:
            return position
        most = min(self._batch.expected, len(block))
        found = messages(block, position, most, *self._scan_limits, self._unchecked)
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
            more = f"{shown_number(self._batch.expected)} more messages"
            due = "End" if self._state is State.STREAMING else more
            raise HermodError(409, f"{header.batch_type} inside a batch, expected {due} first")
        action(self, header, intake)
        return start, 0

    def _read_message(
        self, header: Header, block: Block, position: int, start: int, intake: Intake
    ) -> tuple[int, int]:
        topic = to_topic(header.topic, "topic", self._limits).encode()
        size = to_size(header.payload_size, self._limits)
        checksum = to_text(header.checksum, "checksum").lower().encode()
        end = start + size
        if end > len(block):
            return position, end - position
        begin, told = find_payload(block, start, size, checksum)
        if told > len(block) and not self._ended:
            return position, told - position
        if begin < 0:
            found = sha1_of(memoryview(block)[start:end]).decode()
            message = f"the payload's sha1 is {found}, its header says {shown(header.checksum)}"
            self._refuse("checksum does not fit", message, intake)
            return end, 0
        if not checksum and not self._unchecked:
            self._refuse("checksum required", "a checksum is required here (hermod.require_checksum)", intake)
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

    def _refuse(self, reason: str, message: str, intake: Intake) -> None:
        """The connection stays. In a batch, the first error is its reply."""
        intake.add(Refused(reason))
        if self._state is State.SINGLE:
            intake.reply(to_error(422, message))
            return
        self._batch.error = self._batch.error or (422, message)
        self._count_down(1, intake)

    def _count_down(self, count: int, intake: Intake) -> None:
        self._batch.expected -= count
        if not self._batch.expected:
            self._end_batch(None, intake)

    def _begin_count(self, header: Header, intake: Intake) -> None:
        self._begin(State.COUNTING, Batch(to_natural(header.count, "count"), header), intake)
        self._count_down(0, intake)

    def _begin_stream(self, header: Header, intake: Intake) -> None:
        self._begin(State.STREAMING, Batch(header=header), intake)

    def _begin(self, state: State, batch: Batch, intake: Intake) -> None:
        self._state, self._batch = state, batch
        if batch.refused:
            intake.add(Refused(NEEDS_THE_LOG % "batch_id"))

    def _end_batch(self, header: Header | None, intake: Intake) -> None:
        intake.reply(self._batch.reply())
        self._state = State.SINGLE
        self._batch = Batch()

    # -- subscriptions -----------------------------------------------------------------------------------

    def _subscribe(self, header: Header, intake: Intake) -> None:
        topics = self._to_topics(header.topics)
        if header.from_ is not UNSET:
            intake.add(Refused(NEEDS_THE_LOG % "from"))
            intake.reply(to_error(501, NEEDS_THE_LOG_HERE % "from"))
            return
        window, batch = _to_pace(header.window, "window"), _to_pace(header.batch, "batch")
        paces = window is not None or batch is not None
        if paces and not self._paced:
            self._paced = PacedForm()
        self._topics |= dict.fromkeys(topics)
        for topic in self._topics if self._paced else topics:
            intake.add(Subscribe(Exact(topic), self._paced or FORM))
        if self._paced:
            self._topics = {}
        intake.add(Reply(OK))
        if self._paced and paces:
            intake.defer(partial(self._paced.set, window, batch), self._paced)

    def _to_topics(self, value: Any) -> list[str]:
        if not isinstance(value, list):
            raise HermodError(400, f"topics is {shown(value)}, expected a list of strings")
        return [to_topic(topic, "one of the topics", self._limits) for topic in value]

    def _handle_status(self, header: Header, intake: Intake) -> None:
        status = to_text(header.status, "status").upper()
        if status == "CLOSE":
            intake.add(Closing())
        elif status == "ERROR":
            intake.add(to_refused(header))
        elif status == "OK":
            self._acknowledge(header, intake)
        else:
            raise HermodError(400, f"status is {shown(header.status)}, expected OK, CLOSE or ERROR")

    def _acknowledge(self, header: Header, intake: Intake) -> None:
        """Who asked for no window need not say OK, but may."""
        form = self._paced
        if header.sequence is not UNSET:
            topic = to_text(header.topic, "topic").encode()
            sequence = to_natural(header.sequence, "sequence")
            if form:
                intake.defer(partial(form.acknowledge_up_to, topic, sequence), form)
        elif form:
            intake.defer(form.acknowledge, form)


def _to_pace(value: Any, key: str) -> int | None:
    """It holds for all topics of the connection; None: what holds so far is to stay."""
    return None if value is UNSET else to_natural(value, key)


def to_refused(header: Header) -> Refused:
    """What a client calls an ERROR, for those who read the log."""
    reason = "ERROR of a client"
    detail = f"{reason}: {shown(header.code)}, {shown(header.message, ERROR_CHARACTERS)}"
    return Refused(reason, detail=detail)


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
