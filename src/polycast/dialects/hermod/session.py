"""The dialect `hermod` ("simple pub/sub protocol"): a JSON header, directly followed by the payload.

    publisher -> broker    {"topic": T, "payload_size": N, "checksum": sha1}PAYLOAD
                           {"batch_type": "Count", "count": N}   {"batch_type": "Start"}   {"batch_type": "End"}
                           {"batch_type": "Count", "count": N, "batch_id": I}: atomic and idempotent
                           {"batch_type": "Stage", ...}PAYLOAD   {"batch_type": "Commit", ...}: see `batches`
    broker -> publisher    {"status": "OK"} LF   {"status": "OK", "count": N} LF
                           {"status": "ERROR", "code": C, "message": M} LF
    subscriber -> broker   {"topics": [T, ...]}   {"status": "OK"}   {"status": "CLOSE"}
                           {"patterns": [P, ...]}, with or without topics; "from" in either reads from the log
    either -> broker       "token": T beside the other keys of a header authenticates the connection
    either -> broker       {"request": ROUTE, "id": I, "body": any JSON}, a request; "body" is optional
    broker -> subscriber   {"status": "OK"} LF, to each `topics`
                           {"status": "ERROR", "code": 410, "message": M, "first": N, "next": N} LF, in place of
                           messages that the log cannot deliver; it acknowledges nothing
                           {"topic": T, "sequence": S, "payload_size": N, "checksum": sha1}PAYLOAD

There is a listener for publishers and one for subscribers; both accept every header. After a bad header the start
of the next one is unknown, so the connection is closed; a wrong checksum costs only its message. A message whose
topic is forbidden is refused at its header, and its payload is skipped. Responses carry the id of their request
and may come in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from polycast.dialects.hermod import batches
from polycast.dialects.hermod.batches import NEEDS_THE_LOG, Batch, BatchLimits, BatchState, to_batch, to_stream
from polycast.dialects.hermod.block_events import BlockEvents
from polycast.dialects.hermod.encoders import NAME, response_blocks, to_error, to_greeting, to_miss, to_response
from polycast.dialects.hermod.headers import (
    FORBIDDEN,
    OPENING,
    WHOLE_BYTES,
    Header,
    HeaderEnd,
    HeaderKind,
    HermodError,
    PayloadSkipper,
    TokenError,
    after_space,
    find_payload,
    kind_of,
    read_header,
    shown_number,
    to_code,
    to_flag,
    to_natural,
    to_request,
    to_size,
    to_text,
    to_topic,
)
from polycast.dialects.hermod.scan import messages, sha1_of
from polycast.dialects.hermod.settings import HermodSettings
from polycast.dialects.hermod.subscriptions import Subscriptions
from polycast.dialects.json_bodies import UNSET, shown
from polycast.dialects.session import RequestSession, SessionContext
from polycast.errors import PeerError
from polycast.model import Block, Body, Closing, Event, Received, Refused, Reply

ERROR_CHARACTERS = 140
"""How many characters of a client's ERROR go to the log."""


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
        self._context = context
        self._has_log = context.has_log
        self._batch_limits = BatchLimits(settings.batch_bytes, settings.batch_topics)
        self._header_end = HeaderEnd()
        self._frame_bytes = 0
        self._ended = False
        self._one_by_one = False
        """Whether the block has a forbidden topic: then its messages are read one by one."""
        self._skipper: PayloadSkipper | None = None
        """Skips the payload of a refused message or stage."""
        self._state = BatchState.SINGLE
        self._batch = Batch()
        self._subscriptions = Subscriptions(context)

    @property
    def withheld_bytes(self) -> int:  # type: ignore[override]
        return self._subscriptions.withheld_bytes

    @property
    def buffered_bytes(self) -> int:  # type: ignore[override]
        """The bytes of an unfinished atomic batch."""
        return self._batch.buffered_bytes

    def receive(self, block: Block, now: float) -> Received:
        if len(block) < self._frame_bytes:
            return Received([], 0, self._frame_bytes)
        position = self._frame_bytes = 0
        if self._skipper:
            position = self._skip(block, 0)
            if self._skipper:
                return Received([], position)
        events = BlockEvents(block)
        self._one_by_one = False
        try:
            while not events.closed:
                position = self._take_plain(block, position, events)
                if self._frame_bytes:
                    return events.close(position, self._frame_bytes)
                position = after_space(block, position)
                after, self._frame_bytes = self._read_frame(block, position, events)
                if after == position or self._skipper:
                    self._batch.buffer(block)
                    return events.close(after, self._frame_bytes)
                position = after
        except PeerError as error:
            events.add(Closing(error))
        return events.close(len(block))

    def end(self, rest: Block, now: float) -> list[Event]:
        """A payload with a wrong checksum may have waited for one more byte; none will come."""
        self._ended = True
        self._frame_bytes = 0
        return self.receive(rest, now).events

    def close(self) -> None:
        self._batch = Batch()
        self._subscriptions.close()

    def closing_bytes(self, error: PeerError | None) -> bytes:
        accepted = None if self._state is BatchState.SINGLE else self._batch.accepted
        if error is None:
            return to_error(503, "the broker is shutting down; connect again later", accepted)
        return to_error(to_code(error), str(error), accepted)

    # -- publications ------------------------------------------------------------------------------------

    def _take_plain(self, block: Block, position: int, events: BlockEvents) -> int:
        if self._header_end.started or self._batch.refused or self._one_by_one:
            return position
        most = min(self._batch.expected, len(block))
        found = messages(block, position, most, *self._scan_limits, self._unchecked)
        if self.guard.restricted and not all(map(self.guard.may_publish, found[0])):
            self._one_by_one = True
            return position
        if count := self._batch.extend(found, events.columns):
            self._accept(count, events)
        if not self.guard.restricted and type(self._batch) is Batch:  # the others check the header first
            self._frame_bytes = found[-1]
        return found[-2]

    def _read_frame(self, block: Block, position: int, events: BlockEvents) -> tuple[int, int]:
        """The position after a header and its payload; or the same position, and the length of the frame."""
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
        if kind is HeaderKind.MESSAGE:
            return self._read_message(header, block, position, start, events)
        if kind is HeaderKind.STAGE and self._state is BatchState.SINGLE:
            return self._read_stage(header, block, position, start, events)
        action = ACTIONS.get((self._state, kind))
        if action is None:
            more = f"{shown_number(self._batch.expected)} more messages"
            due = "End" if self._state is BatchState.STREAMING else more
            raise HermodError(409, f"{header.batch_type} inside a batch, expected {due} first")
        action(self, header, events)
        return start, 0

    def _read_message(
        self, header: Header, block: Block, position: int, start: int, events: BlockEvents
    ) -> tuple[int, int]:
        topic = to_topic(header.topic, "topic", self._limits).encode()
        size = to_size(header.payload_size, self._limits)
        checksum = to_text(header.checksum, "checksum").lower().encode()
        forbidden = self.guard.restricted and not self.guard.may_publish(topic)
        if forbidden and size > WHOLE_BYTES:
            self._forbid(header, events)
            self._skipper = PayloadSkipper(size, checksum)
            return self._skip(block, start), 0
        if not forbidden:
            self._batch.check(topic, size)
        end = start + size
        if end > len(block):
            return position, end - position
        begin, decided_at = find_payload(block, start, size, checksum)
        if decided_at > len(block) and not self._ended:
            return position, decided_at - position
        if forbidden:
            self._forbid(header, events)
            return (begin + size if begin >= 0 else end), 0
        if begin < 0:
            found = sha1_of(memoryview(block)[start:end]).decode()
            message = f"the payload's sha1 is {found}, its header says {shown(header.checksum)}"
            self._refuse("checksum does not fit", message, events)
            return end, 0
        if not checksum and not self._unchecked:
            self._refuse("checksum required", "a checksum is required here (hermod.require_checksum)", events)
            return end, 0
        self._batch.add(topic, begin, begin + size, checksum, events.columns)
        self._accept(1, events)
        return begin + size, 0

    def _forbid(self, header: Header, events: BlockEvents) -> None:
        self._refuse(FORBIDDEN, FORBIDDEN, events, 403, self.guard.denial_text("publish to", header.topic))

    def _skip(self, block: Block, position: int) -> int:
        assert self._skipper
        position = self._skipper.feed(block, position)
        if self._skipper.done:
            self._skipper = None
        return position

    def _accept(self, count: int, events: BlockEvents) -> None:
        if self._state is BatchState.SINGLE:
            events.replies.add_oks(count)
            return
        self._batch.accept(count)
        self._count_down(count, events)

    def _refuse(self, reason: str, message: str, events: BlockEvents, code: int = 422, detail: str = "") -> None:
        """The connection stays open."""
        events.add(Refused(reason, detail=detail))
        if self._state is BatchState.SINGLE:
            events.replies.add_reply(to_error(code, message))
            return
        self._batch.refuse(code, message)
        self._count_down(1, events)

    def _count_down(self, count: int, events: BlockEvents) -> None:
        self._batch.expected -= count
        if not self._batch.expected:
            self._end_batch(None, events)

    def _begin_count(self, header: Header, events: BlockEvents) -> None:
        count = to_natural(header.count, "count")
        batch = to_batch(header, count, self._has_log, self._batch_limits, self.guard.identity)
        self._begin(BatchState.COUNTING, batch, events)
        self._count_down(0, events)

    def _begin_stream(self, header: Header, events: BlockEvents) -> None:
        self._begin(BatchState.STREAMING, to_stream(header, self._has_log), events)

    def _begin(self, state: BatchState, batch: Batch, events: BlockEvents) -> None:
        self._state, self._batch = state, batch
        if batch.refused:
            events.add(Refused(NEEDS_THE_LOG % "batch_id"))

    def _greet(self, header: Header, events: BlockEvents) -> None:
        """The end of no batch: a publisher sends it to find out whether the broker speaks hermod."""
        if to_flag(header.offsets, "offsets") and self._has_log:
            events.replies.add_reply(to_greeting(self._context.log_id, self._context.batch_ids))
        else:
            self._end_batch(header, events)

    def _end_batch(self, header: Header | None, events: BlockEvents) -> None:
        events.end_batch(self._batch)
        self._state = BatchState.SINGLE
        self._batch = Batch()

    # -- stages ------------------------------------------------------------------------------------------

    def _read_stage(
        self, header: Header, block: Block, position: int, start: int, events: BlockEvents
    ) -> tuple[int, int]:
        size = batches.frame_size(header, self._limits)
        if self._refuse_stages(events):
            self._skipper = PayloadSkipper(size)
            return self._skip(block, start), 0
        end = start + size
        if end > len(block):
            return position, end - position
        data = bytes(memoryview(block)[start:end])
        events.add(batches.to_stage(header, data, self._unchecked, self.guard.identity))
        return end, 0

    def _commit(self, header: Header, events: BlockEvents) -> None:
        if not self._refuse_stages(events):
            events.add(batches.to_commit(header, self.guard.identity))

    def _abort(self, header: Header, events: BlockEvents) -> None:
        if not self._refuse_stages(events):
            events.add(batches.to_abort(header, self.guard.identity))

    def _refuse_stages(self, events: BlockEvents) -> bool:
        """Whether stages are refused, for lack of rights or of a log, before their payload is read."""
        if not self.guard.may_publish_anything:
            events.add(Refused(FORBIDDEN, detail=self.guard.denial_text("publish", "anything")))
            events.add(Reply(to_error(403, FORBIDDEN)))
        elif not self._has_log:
            events.add(Refused(batches.STAGES_NEED_THE_LOG))
            events.add(Reply(to_error(501, batches.STAGES_REFUSED)))
        return not (self._has_log and self.guard.may_publish_anything)

    # -- subscribers, requests --------------------------------------------------------------------------

    def _subscribe(self, header: Header, events: BlockEvents) -> None:
        self._subscriptions.subscribe(header, events, self.guard)

    def to_miss(self, first: int, after: int, cause: str) -> bytes:
        return self._subscriptions.notify(to_miss(first, after, cause))

    def _request(self, header: Header, events: BlockEvents) -> None:
        events.add(to_request(header, self._limits))

    def to_response(self, handle: int, success: bool, body: Body) -> bytes:
        return to_response(handle, success, body)

    def response_blocks(self, handle: int, success: bool, body: Body) -> tuple[bytes, ...]:
        return response_blocks(handle, success, body)

    def _handle_status(self, header: Header, events: BlockEvents) -> None:
        status = to_text(header.status, "status").upper()
        if status == "CLOSE":
            events.add(Closing())
        elif status == "ERROR":
            events.add(to_refused(header))
        elif status == "OK":
            self._subscriptions.acknowledge(header, events)
        else:
            raise HermodError(400, f"status is {shown(header.status)}, expected OK, CLOSE or ERROR")


def to_refused(header: Header) -> Refused:
    """The ERROR of a client, for the broker's log."""
    reason = "ERROR of a client"
    detail = f"{reason}: {shown(header.code)}, {shown(header.message, ERROR_CHARACTERS)}"
    return Refused(reason, detail=detail)


Action = Callable[[HermodSession, Header, BlockEvents], None]

ACTIONS: dict[tuple[BatchState, HeaderKind], Action] = {
    (BatchState.SINGLE, HeaderKind.COUNT): HermodSession._begin_count,
    (BatchState.SINGLE, HeaderKind.START): HermodSession._begin_stream,
    (BatchState.SINGLE, HeaderKind.END): HermodSession._greet,
    (BatchState.STREAMING, HeaderKind.END): HermodSession._end_batch,
    (BatchState.SINGLE, HeaderKind.COMMIT): HermodSession._commit,
    (BatchState.SINGLE, HeaderKind.ABORT): HermodSession._abort,
    **{(state, HeaderKind.TOPICS): HermodSession._subscribe for state in BatchState},
    **{(state, HeaderKind.REQUEST): HermodSession._request for state in BatchState},
    **{(state, HeaderKind.STATUS): HermodSession._handle_status for state in BatchState},
}
"""Headers without a payload; a missing key is a protocol error."""
