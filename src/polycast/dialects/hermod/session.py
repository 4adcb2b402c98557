"""The dialect `hermod` ("simple pub/sub protocol"): a JSON header, directly followed by the payload.

    publisher -> broker    {"topic": T, "payload_size": N, "checksum": sha1}PAYLOAD
                           {"batch_type": "Count", "count": N}   {"batch_type": "Start"}   {"batch_type": "End"}
                           {"batch_type": "Count", "count": N, "batch_id": I}: all of it or nothing, and once only
                           {"batch_type": "Stage", ...}PAYLOAD   {"batch_type": "Commit", ...}: see `stages`
    broker -> publisher    {"status": "OK"} LF   {"status": "OK", "count": N} LF
                           {"status": "ERROR", "code": C, "message": M} LF
    subscriber -> broker   {"topics": [T, ...]}   {"status": "OK"}   {"status": "CLOSE"}
                           {"patterns": [P, ...]}, with or without topics; "from" in either asks the log
    either -> broker       "token": T beside the other keys of a header says who it is, from there on
    either -> broker       {"ask": ROUTE, "id": I, "body": any JSON}: see `asks`
    broker -> subscriber   {"status": "OK"} LF, to each `topics`
                           {"topic": T, "sequence": S, "payload_size": N, "checksum": sha1}PAYLOAD

One port is meant for publishers and one for subscribers; on either, each header says what it is. After a bad
header nobody knows where the next one begins, so the connection ends; a checksum that does not fit costs only
its message. A message that its header already forbids is refused then, and its payload is passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from polycast.dialects.hermod import asks, stages
from polycast.dialects.hermod.batches import NEEDS_THE_LOG, Batch, State, to_batch, to_stream
from polycast.dialects.hermod.encoders import NAME, to_error
from polycast.dialects.hermod.headers import (
    FORBIDDEN,
    OPENING,
    Header,
    HeaderEnd,
    HermodError,
    Kind,
    TokenError,
    after_space,
    find_payload,
    kind_of,
    read_header,
    shown_number,
    to_code,
    to_natural,
    to_size,
    to_text,
    to_topic,
)
from polycast.dialects.hermod.intake import Intake
from polycast.dialects.hermod.scan import messages, sha1_of
from polycast.dialects.hermod.settings import HermodSettings
from polycast.dialects.hermod.skipping import WHOLE_BYTES, Skipping
from polycast.dialects.hermod.subscriptions import Subscriptions
from polycast.dialects.json_values import UNSET, shown
from polycast.dialects.session import RequestSession, SessionContext
from polycast.errors import PeerError
from polycast.model import Block, Body, Closing, Event, Received, Refused, Reply

ERROR_CHARACTERS = 140
"""How much of a client's words goes to the log."""


class HermodSession(RequestSession):
    acknowledges = True
    accepts_token = True

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        settings: HermodSettings = context.tables.get(NAME) or HermodSettings()
        self._unchecked = not settings.require_checksum
        self._scan_limits = (
            min(context.limits.topic_bytes, sys.maxsize),
            min(context.limits.payload_bytes, sys.maxsize),
            min(context.limits.line_bytes, sys.maxsize),
        )
        self._kept = context.has_log
        self._batch_bytes = settings.batch_bytes
        self._header_end = HeaderEnd()
        self._need = 0
        self._ended = False
        self._one_by_one = False
        """Whether something in this block is forbidden: then all of the rest is looked at by itself."""
        self._skipping: Skipping | None = None
        """The payload of a refused message or stage that is still to come."""
        self._state = State.SINGLE
        self._batch = Batch()
        self._subscriptions = Subscriptions(context.limits, context.has_log)

    @property
    def withheld_bytes(self) -> int:  # type: ignore[override]
        return self._subscriptions.withheld_bytes

    @property
    def buffered_bytes(self) -> int:  # type: ignore[override]
        """What this session keeps of a batch that must be whole before it is published."""
        return self._batch.buffered_bytes

    def receive(self, block: Block, now: float) -> Received:
        if len(block) < self._need:
            return Received([], 0, self._need)
        position = self._need = 0
        if self._skipping:
            position = self._skip(block, 0)
            if self._skipping:
                return Received([], position)
        intake = Intake(block)
        self._one_by_one = False
        try:
            while not intake.closed:
                position = self._take_plain(block, position, intake)
                position = after_space(block, position)
                after, self._need = self._read_frame(block, position, intake)
                if after == position or self._skipping:
                    self._batch.keep(block)
                    return intake.close(after, self._need)
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
        self._batch = Batch()
        self._subscriptions.close()

    def closing_bytes(self, error: PeerError | None) -> bytes:
        accepted = None if self._state is State.SINGLE else self._batch.accepted
        if error is None:
            return to_error(503, "the broker is shutting down; connect again later", accepted)
        return to_error(to_code(error), str(error), accepted)

    # -- publications ------------------------------------------------------------------------------------

    def _take_plain(self, block: Block, position: int, intake: Intake) -> int:
        if self._header_end.begun or self._batch.refused or self._one_by_one:
            return position
        most = min(self._batch.expected, len(block))
        found = messages(block, position, most, *self._scan_limits, self._unchecked)
        if self.guard.restricted and not all(map(self.guard.may_publish, found[0])):
            self._one_by_one = True
            return position
        if count := self._batch.extend(found, intake.columns):
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
        if header.token is not UNSET and not self.guard.authenticate(to_text(header.token, "token")):
            raise TokenError
        kind = kind_of(header)
        if kind is Kind.MESSAGE:
            return self._read_message(header, block, position, start, intake)
        if kind is Kind.STAGE and self._state is State.SINGLE:
            return self._read_stage(header, block, position, start, intake)
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
        forbidden = self.guard.restricted and not self.guard.may_publish(topic)
        if forbidden and size > WHOLE_BYTES:
            self._forbid(header, intake)
            self._skipping = Skipping(size, checksum)
            return self._skip(block, start), 0
        if not forbidden:
            self._batch.check(topic, size)
        end = start + size
        if end > len(block):
            return position, end - position
        begin, told = find_payload(block, start, size, checksum)
        if told > len(block) and not self._ended:
            return position, told - position
        if forbidden:
            self._forbid(header, intake)
            return (begin + size if begin >= 0 else end), 0
        if begin < 0:
            found = sha1_of(memoryview(block)[start:end]).decode()
            message = f"the payload's sha1 is {found}, its header says {shown(header.checksum)}"
            self._refuse("checksum does not fit", message, intake)
            return end, 0
        if not checksum and not self._unchecked:
            self._refuse("checksum required", "a checksum is required here (hermod.require_checksum)", intake)
            return end, 0
        self._batch.add(topic, begin, begin + size, checksum, intake.columns)
        self._accept(1, intake)
        return begin + size, 0

    def _forbid(self, header: Header, intake: Intake) -> None:
        self._refuse(FORBIDDEN, FORBIDDEN, intake, 403, self.guard.denial_text("publish to", header.topic))

    def _skip(self, block: Block, position: int) -> int:
        assert self._skipping
        position = self._skipping.feed(block, position)
        if self._skipping.done:
            self._skipping = None
        return position

    def _accept(self, count: int, intake: Intake) -> None:
        if self._state is State.SINGLE:
            intake.answers.add_oks(count)
            return
        self._batch.accept(count)
        self._count_down(count, intake)

    def _refuse(self, reason: str, message: str, intake: Intake, code: int = 422, detail: str = "") -> None:
        """The connection stays."""
        intake.add(Refused(reason, detail=detail))
        if self._state is State.SINGLE:
            intake.answers.add_words(to_error(code, message))
            return
        self._batch.refuse(code, message)
        self._count_down(1, intake)

    def _count_down(self, count: int, intake: Intake) -> None:
        self._batch.expected -= count
        if not self._batch.expected:
            self._end_batch(None, intake)

    def _begin_count(self, header: Header, intake: Intake) -> None:
        count = to_natural(header.count, "count")
        batch = to_batch(header, count, self._kept, self._batch_bytes, self.guard.identity)
        self._begin(State.COUNTING, batch, intake)
        self._count_down(0, intake)

    def _begin_stream(self, header: Header, intake: Intake) -> None:
        self._begin(State.STREAMING, to_stream(header, self._kept), intake)

    def _begin(self, state: State, batch: Batch, intake: Intake) -> None:
        self._state, self._batch = state, batch
        if batch.refused:
            intake.add(Refused(NEEDS_THE_LOG % "batch_id"))

    def _end_batch(self, header: Header | None, intake: Intake) -> None:
        intake.end_batch(self._batch)
        self._state = State.SINGLE
        self._batch = Batch()

    # -- stages ------------------------------------------------------------------------------------------

    def _read_stage(
        self, header: Header, block: Block, position: int, start: int, intake: Intake
    ) -> tuple[int, int]:
        size = stages.frame_size(header, self._limits)
        if self._refuse_stages(intake):
            self._skipping = Skipping(size)
            return self._skip(block, start), 0
        end = start + size
        if end > len(block):
            return position, end - position
        data = bytes(memoryview(block)[start:end])
        intake.add(stages.to_stage(header, data, self._unchecked, self.guard.identity))
        return end, 0

    def _commit(self, header: Header, intake: Intake) -> None:
        event = stages.to_commit(header, self.guard.identity)
        if not self._refuse_stages(intake):
            intake.add(event)

    def _abort(self, header: Header, intake: Intake) -> None:
        event = stages.to_abort(header, self.guard.identity)
        if not self._refuse_stages(intake):
            intake.add(event)

    def _refuse_stages(self, intake: Intake) -> bool:
        """Whether this peer can have no stages here; it is told so before any of their rows is read."""
        if not self.guard.may_publish_anything:
            intake.add(Refused(FORBIDDEN, detail=self.guard.denial_text("publish", "anything")))
            intake.add(Reply(to_error(403, FORBIDDEN)))
        elif not self._kept:
            intake.add(Refused(stages.NEEDS_THE_LOG))
            intake.add(Reply(to_error(501, stages.NEEDS_THE_LOG_HERE)))
        return not (self._kept and self.guard.may_publish_anything)

    # -- what subscribers say ----------------------------------------------------------------------------

    def _subscribe(self, header: Header, intake: Intake) -> None:
        self._subscriptions.subscribe(header, intake, self.guard)

    def _ask(self, header: Header, intake: Intake) -> None:
        intake.add(asks.to_request(header, self._limits))

    def to_response(self, handle: int, success: bool, body: Body) -> bytes:
        return asks.to_response(handle, success, body)

    def _handle_status(self, header: Header, intake: Intake) -> None:
        status = to_text(header.status, "status").upper()
        if status == "CLOSE":
            intake.add(Closing())
        elif status == "ERROR":
            intake.add(to_refused(header))
        elif status == "OK":
            self._subscriptions.acknowledge(header, intake)
        else:
            raise HermodError(400, f"status is {shown(header.status)}, expected OK, CLOSE or ERROR")


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
    (State.SINGLE, Kind.COMMIT): HermodSession._commit,
    (State.SINGLE, Kind.ABORT): HermodSession._abort,
    **{(state, Kind.TOPICS): HermodSession._subscribe for state in State},
    **{(state, Kind.ASK): HermodSession._ask for state in State},
    **{(state, Kind.STATUS): HermodSession._handle_status for state in State},
}
"""What headers without a payload do. Those that are not here have no place there."""
