"""The client's side of `hermod`: publications are acknowledged, messages have a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

import msgspec

from polycast.address import Address
from polycast.dialects.client_requests import Response, check_body, to_failure
from polycast.dialects.client_session import (
    SHOWN_BYTES,
    ClientSession,
    Command,
    Credentials,
    Missed,
    PendingAcks,
    utf8,
)
from polycast.dialects.client_subscriptions import StartFrom
from polycast.dialects.hermod.encoders import MISSED, NAME
from polycast.dialects.hermod.headers import Header, HeaderEnd, after_space, read_header, to_natural, to_text
from polycast.dialects.json_bodies import UNSET, to_member
from polycast.dialects.start_positions import to_json_start
from polycast.errors import HermodPeerError, ProtocolError, RefusedError, UsageError
from polycast.model import Body, Exact, Format, Message, Pattern, StartPosition

HEADER_BYTES = 2**20
TOPIC_BYTES = 2**16 - 1
"""A broker with a lower limit refuses longer topics."""
OPENING = ord("{")
HELLO = {"batch_type": "End"}
"""Probe: an `End` without a batch. A hermod broker replies OK; brokers of other dialects ignore it."""
CLOSING = (400, 401, 409, 412, 413, HermodPeerError.code)
"""After these the broker closes."""
STOPPING = 503


class Status(msgspec.Struct):
    status: str
    code: int = 0
    message: str = ""
    count: int = 0
    first: int = 0
    next: int | None = None
    log: str = ""
    batch_ids: int = 0


class HermodClientSession(ClientSession):
    dialect = NAME
    pattern_bytes = TOPIC_BYTES

    def __init__(self, address: Address, publishing: bool, credentials: Credentials) -> None:
        super().__init__(address, publishing, credentials)
        self._end = HeaderEnd()
        self._requests = 0

    # -- writing -----------------------------------------------------------------------------------------

    def open(self) -> Command:
        """A publisher sends nothing before the broker has replied in hermod."""
        if not self.publishing and not self.credentials.token:
            return Command(b"", PendingAcks())
        token = {"token": self.credentials.token} if self.credentials.token else {}
        offsets = {"offsets": True} if self.resumes else {}
        return Command(msgspec.json.encode(HELLO | token | offsets), self.expect_ack(PendingAcks()))

    def encode(self, message: Message) -> bytes:
        topic, payload = msgspec.json.encode(utf8(message.topic).decode()), message.payload
        digest = sha1(payload, usedforsecurity=False).hexdigest().encode()
        return b'{"topic":%b,"payload_size":%d,"checksum":"%b"}%b' % (topic, len(payload), digest, payload)

    def to_block(self, block: bytes, count: int, acks: PendingAcks) -> bytes:
        """One message is acknowledged by itself, several as a batch."""
        self.expect_ack(acks, count)
        return block if count == 1 else b'{"batch_type":"Count","count":%d}' % count + block

    def to_block_with_id(self, block: bytes, count: int, acks: PendingAcks, batch_id: str) -> bytes:
        self.expect_ack(acks, count)
        return _to_header("Count", batch_id, count=count) + block

    def to_batch(self, messages: list[Message], batch_id: str, acks: PendingAcks) -> bytes:
        """The acknowledgement has the count: for a repeat, that of the first time."""
        self.expect_ack(acks)
        header = {"batch_type": "Count", "count": len(messages), "batch_id": utf8(batch_id).decode()}
        return msgspec.json.encode(header) + b"".join(map(self.encode, messages))

    def to_stage(self, batch_id: str, name: str, before: int, frame: memoryview, acks: PendingAcks) -> bytes:
        self.expect_ack(acks)
        size, digest = frame.nbytes, sha1(frame, usedforsecurity=False).hexdigest()
        more = {"stage": name, "count": before, "payload_size": size, "checksum": digest}
        return b"".join((_to_header("Stage", batch_id, **more), frame))

    def to_commit(self, batch_id: str, names: Sequence[str], count: int | None, acks: PendingAcks) -> bytes:
        self.expect_ack(acks)
        more = {} if count is None else {"count": count}
        return _to_header("Commit", batch_id, stages=list(names), **more)

    def to_abort(self, batch_id: str, names: Sequence[str] | None, acks: PendingAcks) -> bytes:
        self.expect_ack(acks)
        more = {} if names is None else {"stages": list(names)}
        return _to_header("Abort", batch_id, **more)

    def to_request(self, route: str, body: Body) -> tuple[bytes, int]:
        name = msgspec.json.encode(utf8(route).decode())
        check_body(body)
        self._requests += 1
        self.responses[self._requests] = None
        return b'{"request":%b,"id":%d%b}' % (name, self._requests, to_member(body)), self._requests

    def to_subscribe(self, patterns: list[Pattern]) -> Command:
        return self._to_handshake(patterns)

    def check_start(self, patterns: list[Pattern], start: StartFrom) -> None:
        others = [str(pattern) for pattern in patterns if not isinstance(pattern, Exact)]
        if isinstance(start, StartPosition) and start.sequence is not None and others:
            hint = "name the topics, or start at a time"
            raise UsageError(f"a sequence belongs to one topic, and {others[0]!r} may match many", hint)

    def to_subscribe_from(self, patterns: list[Pattern], start: StartFrom) -> Command:
        return self._to_handshake(
            patterns, **{"from": to_json_start(start if isinstance(start, StartPosition) else None, patterns)}
        )

    def _to_handshake(self, patterns: list[Pattern], **more: Any) -> Command:
        """`patterns` is an extension of Polycast, so exact topics go in `topics`."""
        topics = [pattern.value for pattern in patterns if isinstance(pattern, Exact)]
        others = [str(pattern) for pattern in patterns if not isinstance(pattern, Exact)]
        header: dict[str, Any] = (
            {"topics": topics} | ({"patterns": others} if others else {}) | {"offsets": True} | more
        )
        if self.resumes:
            header["delivery"] = "committed"
        if self.log_id and str(more.get("from", "")).startswith("@"):
            header["log"] = self.log_id
        return Command(msgspec.json.encode(header), self.expect_ack(PendingAcks()))

    def closing_bytes(self) -> bytes:
        return b"" if self.publishing else b'{"status":"CLOSE"}'

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, block: bytes) -> tuple[int, int]:
        position = need = 0
        arrived: list[Message] = []
        try:
            while (position := after_space(block, position)) < len(block):
                after, need = self._read_one(block, position, arrived)
                if after == position:
                    break
                position = after
        finally:
            self.deliver(arrived)
        return position, need

    def _read_one(self, block: bytes, position: int, arrived: list[Message]) -> tuple[int, int]:
        """The position after one status or message, or the same one and how long it will be."""
        if block[position] != OPENING:
            raise ProtocolError(f"{block[position : position + SHOWN_BYTES]!r} is not hermod")
        end = self._end.find(block, position, HEADER_BYTES)
        if not end:
            return position, 0
        header = read_header(block, position, end)
        if header.status is not UNSET and header.payload_size is UNSET:
            self.deliver(arrived)  # a subscription that is confirmed here begins behind them
            arrived.clear()
            self._handle_status(header, block[position:end])
            return end, 0
        after = end + to_natural(header.payload_size, "payload_size")
        if after > len(block):
            return position, after - position
        if header.id is not UNSET:
            self._handle_response(header, Response(True, _to_body(header, block[end:after])))
        else:
            arrived.append(_to_message(header, block[end:after]))
        return after, 0

    def _handle_response(self, header: Header, response: Response) -> None:
        """Ignored if the request has timed out."""
        number = to_natural(header.id, "id")
        if number in self.responses:
            self.responses[number] = response

    def _handle_status(self, header: Header, text: bytes) -> None:
        if header.id is not UNSET:
            self._handle_response(header, to_failure(to_text(header.message, "message")))
            return
        try:
            status = msgspec.json.decode(text, type=Status)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"cannot read the status {text[:100]!r}: {error}") from error
        if status.code == MISSED and status.next is not None:
            self.subscriptions.skip(status.first, status.next)
            self.on_missed(Missed(status.first, status.next, status.message))
            return
        refusal = self._to_refusal(status)
        self.closing = self.closing or status.code in (*CLOSING, STOPPING)
        if status.code == STOPPING:
            self.refusal = refusal if self.publishing else None
            return
        if status.code in CLOSING and not self.pending:  # otherwise the oldest operation reports it
            self.refusal = refusal
        self.log_id = status.log or self.log_id
        self.resends = self.resends or status.batch_ids > 0
        self.handle_ack(refusal, status.count, status.next)

    def _to_refusal(self, status: Status) -> RefusedError | None:
        if status.status == "OK":
            return None
        hint = self.hint() if status.code == HermodPeerError.code else ""
        return RefusedError(f"{self.address}: refused: {status.code} {status.message}", status.code, hint)


def _to_header(batch_type: str, batch_id: str, **more: Any) -> bytes:
    return msgspec.json.encode({"batch_type": batch_type, "batch_id": utf8(batch_id).decode(), **more})


def _to_body(header: Header, payload: bytes) -> Body:
    try:
        return Body(payload, Format(header.format))
    except ValueError as error:
        raise ProtocolError(f"a response in the unknown format {header.format!r}") from error


def _to_message(header: Header, payload: bytes) -> Message:
    topic, checksum = to_text(header.topic, "topic"), to_text(header.checksum, "checksum")
    if checksum and sha1(payload, usedforsecurity=False).hexdigest() != checksum.lower():
        raise ProtocolError(f"a message on {topic!r} whose checksum does not match its {len(payload):,} bytes")
    sequence = to_natural(header.sequence, "sequence")
    if header.offset is UNSET:
        return Message(topic, payload, Format.BYTES, sequence)
    offset, micros = to_natural(header.offset, "offset"), to_natural(header.time, "time")
    return Message(topic, payload, Format.BYTES, sequence, offset, micros / 1e6)
