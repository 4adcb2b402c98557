"""The client's side of `hermod`: what it publishes is acknowledged, what it hears has a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

import msgspec

from polycast.address import Address
from polycast.client.requests import Response, check_body, to_failure
from polycast.client.side import SHOWN_BYTES, Begin, Receipt, Said, Side, utf8
from polycast.dialects.hermod.encoders import NAME
from polycast.dialects.hermod.headers import (
    UNSET,
    Header,
    HeaderEnd,
    after_space,
    read_header,
    to_natural,
    to_text,
)
from polycast.dialects.ubre.messages import to_member
from polycast.errors import ProtocolError, RefusedError, UsageError
from polycast.model import Body, Exact, Format, Message, Pattern, StartPosition

HEADER_BYTES = 2**20
TOPIC_BYTES = 2**16 - 1
"""A broker that takes less says so."""
OPENING = ord("{")
NOTHING_YET = b'{"batch_type":"End"}'
"""The end of no batch: a broker says OK to it, and whoever speaks something else makes nothing of it."""
CLOSING = (400, 401, 409, 413)
"""After these the broker closes."""
STOPPING = 503


class Status(msgspec.Struct):
    status: str
    code: int = 0
    message: str = ""
    count: int = 0


class HermodSide(Side):
    dialect = NAME
    pattern_bytes = TOPIC_BYTES

    def __init__(self, address: Address, publishing: bool) -> None:
        super().__init__(address, publishing)
        self._end = HeaderEnd()
        self._requests = 0

    # -- saying ------------------------------------------------------------------------------------------

    def open(self) -> Said:
        """Before it is trusted with messages, the other end shows that it speaks hermod."""
        if self.credentials.token:
            header = {"batch_type": "End", "token": self.credentials.token}
            return Said(msgspec.json.encode(header), self.owe(Receipt()))
        return Said(NOTHING_YET, self.owe(Receipt())) if self.publishing else Said(b"", Receipt())

    def encode(self, message: Message) -> bytes:
        topic, payload = msgspec.json.encode(utf8(message.topic).decode()), message.payload
        digest = sha1(payload, usedforsecurity=False).hexdigest().encode()
        return b'{"topic":%b,"payload_size":%d,"checksum":"%b"}%b' % (topic, len(payload), digest, payload)

    def to_block(self, block: bytes, count: int, receipt: Receipt) -> bytes:
        """One message is answered by itself, many as a batch."""
        self.owe(receipt, count)
        return block if count == 1 else b'{"batch_type":"Count","count":%d}' % count + block

    def to_batch(self, messages: list[Message], batch_id: str, receipt: Receipt) -> bytes:
        """It is the broker that tells how many it has: at a repeat, those of the first time."""
        self.owe(receipt)
        header = {"batch_type": "Count", "count": len(messages), "batch_id": utf8(batch_id).decode()}
        return msgspec.json.encode(header) + b"".join(map(self.encode, messages))

    def to_stage(self, batch_id: str, name: str, before: int, frame: memoryview, receipt: Receipt) -> bytes:
        """Rows as an Arrow stream; `before` have been sent already."""
        self.owe(receipt)
        size, digest = frame.nbytes, sha1(frame, usedforsecurity=False).hexdigest()
        more = {"stage": name, "count": before, "payload_size": size, "checksum": digest}
        return b"".join((_to_header("Stage", batch_id, **more), frame))

    def to_commit(self, batch_id: str, names: Sequence[str], count: int | None, receipt: Receipt) -> bytes:
        self.owe(receipt)
        more = {} if count is None else {"count": count}
        return _to_header("Commit", batch_id, stages=list(names), **more)

    def to_abort(self, batch_id: str, names: Sequence[str] | None, receipt: Receipt) -> bytes:
        self.owe(receipt)
        more = {} if names is None else {"stages": list(names)}
        return _to_header("Abort", batch_id, **more)

    def to_request(self, route: str, body: Body) -> tuple[bytes, int]:
        name = msgspec.json.encode(utf8(route).decode())
        check_body(body)
        self._requests += 1
        self.answers[self._requests] = None
        return b'{"ask":%b,"id":%d%b}' % (name, self._requests, to_member(body)), self._requests

    def to_asks(self, patterns: list[Pattern]) -> Said:
        return self._to_handshake(patterns)

    def check_start(self, patterns: list[Pattern], start: Begin) -> None:
        others = [str(pattern) for pattern in patterns if not isinstance(pattern, Exact)]
        if isinstance(start, StartPosition) and start.sequence is not None and others:
            hint = "name the topics, or begin at a time"
            raise UsageError(f"a sequence is of one topic, and {others[0]!r} may match many", hint)

    def to_asks_from(self, patterns: list[Pattern], start: Begin) -> Said:
        return self._to_handshake(patterns, **{"from": _to_from(patterns, start)})

    def _to_handshake(self, patterns: list[Pattern], **more: Any) -> Said:
        """Only Polycast knows `patterns`, so whole topics are asked for as all others know them."""
        topics = [pattern.value for pattern in patterns if isinstance(pattern, Exact)]
        others = [str(pattern) for pattern in patterns if not isinstance(pattern, Exact)]
        asks = {"topics": topics} | ({"patterns": others} if others else {}) | more
        return Said(msgspec.json.encode(asks), self.owe(Receipt()))

    def closing_bytes(self) -> bytes:
        return b"" if self.publishing else b'{"status":"CLOSE"}'

    # -- hearing -----------------------------------------------------------------------------------------

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
            self.hear(arrived)
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
            self._handle_status(header, block[position:end])
            return end, 0
        after = end + to_natural(header.payload_size, "payload_size")
        if after > len(block):
            return position, after - position
        if header.id is not UNSET:
            self._handle_answer(header, Response(True, _to_body(header, block[end:after])))
        else:
            arrived.append(_to_message(header, block[end:after]))
        return after, 0

    def _handle_answer(self, header: Header, answer: Response) -> None:
        """Unless nobody waits for it any more."""
        number = to_natural(header.id, "id")
        if number in self.answers:
            self.answers[number] = answer

    def _handle_status(self, header: Header, text: bytes) -> None:
        if header.id is not UNSET:
            self._handle_answer(header, to_failure(to_text(header.message, "message")))
            return
        try:
            status = msgspec.json.decode(text, type=Status)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"cannot read the status {text[:100]!r}: {error}") from error
        refusal = self._to_refusal(status)
        if status.code in CLOSING or (status.code == STOPPING and self.publishing):
            self.goodbye = refusal
        if status.code != STOPPING:
            self.settle(refusal, status.count)

    def _to_refusal(self, status: Status) -> RefusedError | None:
        if status.status == "OK":
            return None
        return RefusedError(f"{self.address}: refused: {status.code} {status.message}", status.code)


def _to_header(batch_type: str, batch_id: str, **more: Any) -> bytes:
    return msgspec.json.encode({"batch_type": batch_type, "batch_id": utf8(batch_id).decode(), **more})


def _to_from(patterns: list[Pattern], start: Begin) -> Any:
    if not isinstance(start, StartPosition):
        return start
    if start.sequence is not None:
        return {"topics": {pattern.value: start.sequence for pattern in patterns}}
    return "earliest" if start.seconds is None else {"time": int(start.seconds * 1000)}


def _to_body(header: Header, payload: bytes) -> Body:
    try:
        return Body(payload, Format(header.format))
    except ValueError as error:
        raise ProtocolError(f"an answer in the format {header.format!r}, which nobody knows") from error


def _to_message(header: Header, payload: bytes) -> Message:
    topic, checksum = to_text(header.topic, "topic"), to_text(header.checksum, "checksum")
    if checksum and sha1(payload, usedforsecurity=False).hexdigest() != checksum.lower():
        raise ProtocolError(f"a message on {topic!r} whose checksum does not fit its {len(payload):,} bytes")
    sequence = to_natural(header.sequence, "sequence")
    return Message(topic, payload, Format.BYTES, sequence)
