"""The headers of `hermod`: where they end, their keys and values, requests, and the payload behind a header.

A header ends where its JSON object ends: braces count, except in strings.
"""

from __future__ import annotations

import re
import sys
from enum import Enum, auto
from hashlib import sha1
from typing import TYPE_CHECKING, Any

import msgspec

from polycast.dialects.hermod.scan import sha1_of
from polycast.dialects.json_bodies import UNSET, cut, shown
from polycast.errors import (
    BehindError,
    ForbiddenError,
    LimitError,
    PeerError,
    ProtocolError,
    TimeoutPeerError,
    UsageError,
)
from polycast.model import Block, Body, Format, Limits, Pattern, Request, parse_pattern

if TYPE_CHECKING:
    from hashlib import _Hash

CR, LF, QUOTE, OPENING = b'\r\n"{'
SHA1_DIGITS = 40
WHOLE_BYTES = 4096
"""A payload up to this size is read as a whole before its message is refused."""
LARGEST_ID = 2**63 - 1
FLAT = re.compile(rb'\{[^{}"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^{}"]*+)*+\}', re.DOTALL)
MARK = re.compile(rb'["{}]')
QUOTED = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
SPACE = re.compile(rb"[ \t\r\n]*+")
FORBIDDEN = "Forbidden"
"""The metric label and the message of a refusal for lack of rights."""


# -- errors ----------------------------------------------------------------------------------------------


class HermodError(ProtocolError):
    """`code` goes into the reply."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class HugeSizeError(HermodError):
    """A size past every limit, with so many digits that the message is cut."""

    kind = LimitError.kind


class TokenError(HermodError):
    """An unknown or revoked token; the reply does not say which."""

    kind = "token"

    def __init__(self) -> None:
        super().__init__(401, "Unauthorized")


CODES: dict[type[PeerError], int] = {
    ProtocolError: 400,
    ForbiddenError: 403,
    LimitError: 413,
    TimeoutPeerError: 503,
    BehindError: 503,
}


def to_code(error: PeerError) -> int:
    return error.code if isinstance(error, HermodError) else CODES.get(type(error), 400)


# -- where a header ends ---------------------------------------------------------------------------------


class HeaderEnd:
    """Finds the end of a header. It resumes where it stopped when the block comes again with more bytes."""

    def __init__(self) -> None:
        self._seen = 0
        self._depth = 0
        self._in_string = False

    @property
    def started(self) -> bool:
        return self._seen > 0

    def find(self, block: Block, position: int, limit: int) -> int:
        """The position after the object at `position`; 0 while it is unfinished."""
        at, stop = position + self._seen, min(len(block), position + limit)
        if not self._seen and (flat := FLAT.match(block, position, stop)):
            return flat.end()
        while at < stop:
            at, before = self._step(block, at, stop), at
            if not self._depth:
                self._seen = 0
                return at
            if at == before:
                break
        if len(block) - position > limit:
            size = self._end_behind(block, at) - position
            raise LimitError("a header", size, limit, "limits.line_bytes")
        self._seen = at - position
        return 0

    def _end_behind(self, block: Block, at: int) -> int:
        """The end of a header that is too long, or of the block."""
        while at < len(block) and self._depth:
            at, before = self._step(block, at, len(block)), at
            if at == before:
                return len(block)
        return at

    def _step(self, block: Block, at: int, stop: int) -> int:
        """The position after the next quote or brace."""
        if self._in_string:
            match = QUOTED.match(block, at, stop)
            at = match.end() if match else at
            if at < stop and block[at] == QUOTE:
                self._in_string = False
                return at + 1
            return at  # a backslash at the very end waits for the next byte
        mark = MARK.search(block, at, stop)
        if mark is None:
            return stop
        self._in_string = mark[0] == b'"'
        self._depth += (mark[0] == b"{") - (mark[0] == b"}")
        return mark.end()


def after_space(block: Block, position: int) -> int:
    match = SPACE.match(block, position)
    return match.end() if match else position


# -- keys and values ------------------------------------------------------------------------------------


class Header(msgspec.Struct):
    """All keys. The keys that are set determine the kind of the header; keys of other kinds are ignored."""

    token: Any = UNSET
    topic: Any = UNSET
    payload_size: Any = UNSET
    checksum: Any = UNSET
    batch_type: Any = UNSET
    count: Any = UNSET
    batch_id: Any = UNSET
    stage: Any = UNSET
    stages: Any = UNSET
    topics: Any = UNSET
    patterns: Any = UNSET
    request: Any = UNSET
    id: Any = UNSET
    body: msgspec.Raw | msgspec.UnsetType = UNSET
    format: Any = UNSET
    window: Any = UNSET
    batch: Any = UNSET
    from_: Any = msgspec.field(name="from", default=UNSET)
    offsets: Any = UNSET
    delivery: Any = UNSET
    log: Any = UNSET
    status: Any = UNSET
    sequence: Any = UNSET
    offset: Any = UNSET
    time: Any = UNSET
    code: Any = UNSET
    message: Any = UNSET


class HeaderKind(Enum):
    MESSAGE = auto()
    COUNT = auto()
    START = auto()
    END = auto()
    STAGE = auto()
    COMMIT = auto()
    ABORT = auto()
    TOPICS = auto()
    REQUEST = auto()
    STATUS = auto()


BATCH_TYPES = {
    "Count": HeaderKind.COUNT,
    "Start": HeaderKind.START,
    "End": HeaderKind.END,
    "Stage": HeaderKind.STAGE,
    "Commit": HeaderKind.COMMIT,
    "Abort": HeaderKind.ABORT,
}
DECODER = msgspec.json.Decoder(Header)


def read_header(block: Block, position: int, end: int) -> Header:
    try:
        return DECODER.decode(str(memoryview(block)[position:end], "utf-8"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HermodError(400, f"a header must be a JSON object in UTF-8: {error}") from error


def kind_of(header: Header) -> HeaderKind:
    """Keys of a payload come first, so that a payload is never read as a header."""
    if header.payload_size is not UNSET or header.checksum is not UNSET:
        return HeaderKind.STAGE if header.batch_type == "Stage" else HeaderKind.MESSAGE
    if header.topics is not UNSET:
        return HeaderKind.TOPICS
    if header.batch_type is not UNSET:
        return _kind_of_batch(header)
    if header.status is not UNSET:
        return HeaderKind.STATUS
    if header.patterns is not UNSET:
        return HeaderKind.TOPICS
    if header.request is not UNSET:
        return HeaderKind.REQUEST
    if header.topic is not UNSET:
        return HeaderKind.MESSAGE
    known = "topic, batch_type, topics, patterns, request and status"
    raise HermodError(400, f"a header must have one of the keys {known}")


def _kind_of_batch(header: Header) -> HeaderKind:
    kind = BATCH_TYPES.get(to_text(header.batch_type, "batch_type"))
    if kind is None:
        known = "Count, Start, End, Stage, Commit or Abort"
        raise HermodError(400, f"batch_type is {shown(header.batch_type)}, expected {known}")
    return kind


def to_natural(value: Any, key: str) -> int:
    if type(value) is not int or value < 0:
        raise HermodError(400, f"{key} is {shown(value)}, expected an integer, 0 or more")
    return value


def to_size(value: Any, limits: Limits) -> int:
    size, limit = to_natural(value, "payload_size"), limits.payload_bytes
    if size > limit and size > sys.maxsize:
        raise HugeSizeError(
            413,
            f"payload_size is {shown(size)}, the limit is {limit:,} (limits.payload_bytes)",
        )
    if size > limit:
        raise LimitError("a payload", size, limit, "limits.payload_bytes")
    return size


def to_flag(value: Any, key: str) -> bool:
    if value is not UNSET and type(value) is not bool:
        raise HermodError(400, f"{key} is {shown(value)}, expected true or false")
    return value is True


def to_text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise HermodError(400, f"{key} is {shown(value)}, expected a string")
    return value


def to_topic(value: Any, key: str, limits: Limits) -> str:
    topic = to_text(value, key)
    size = len(topic.encode())
    if size > limits.topic_bytes:
        raise LimitError("a topic", size, limits.topic_bytes, "limits.topic_bytes")
    return topic


def to_pattern(value: Any, limits: Limits) -> Pattern:
    """From the text form of `model.parse_pattern`."""
    text = to_text(value, "one of the patterns")
    try:
        pattern = parse_pattern(text)
    except UsageError as error:
        raise HermodError(400, f"one of the patterns is {shown(text)}: {error}; {error.hint}") from error
    size = len(pattern.value.encode())
    if size > limits.topic_bytes:
        raise LimitError("a pattern", size, limits.topic_bytes, "limits.topic_bytes")
    return pattern


def shown_number(value: int) -> str:
    return cut(f"{value:,}")


# -- requests --------------------------------------------------------------------------------------------


def to_request(header: Header, limits: Limits) -> Request:
    route = to_topic(header.request, "request", limits)
    number = to_natural(header.id, "id")
    if number > LARGEST_ID:
        raise HermodError(400, f"id is {shown(number)}, expected no more than {LARGEST_ID:,}")
    return Request(route, number, _to_body(header.body))


def _to_body(raw: msgspec.Raw | msgspec.UnsetType) -> Body:
    """A string becomes text, any other value JSON."""
    if raw is UNSET:
        return Body()
    try:
        if bytes(raw)[:1] == b'"':
            return Body(msgspec.json.decode(raw, type=str).encode(), Format.TEXT)
        return Body(msgspec.json.format(bytes(raw), indent=-1), Format.JSON)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise HermodError(400, f"body is no JSON: {error}") from error


# -- payloads ------------------------------------------------------------------------------------------


def find_payload(block: Block, start: int, size: int, checksum: bytes) -> tuple[int, int]:
    """The start of the payload with this checksum, or -1; and the end of the bytes that decide it.

    The payload starts where the header ends, but the example of the specification has a line break between them.
    """
    view, end = memoryview(block), start + size
    if not checksum or sha1_of(view[start:end]) == checksum:
        return start, end
    if not size or len(checksum) != SHA1_DIGITS:
        return -1, end
    skip = _line_break(block, start)
    if skip and end + skip <= len(block) and sha1_of(view[start + skip : end + skip]) == checksum:
        return start + skip, end + skip
    return -1, end + skip


def _line_break(block: Block, start: int) -> int:
    """The length of the line break at `start`; for a CR at the end of the block, one more byte decides."""
    if block[start] == LF:
        return 1
    if block[start] != CR:
        return 0
    return 1 if start + 1 == len(block) else 2 * (block[start + 1] == LF)


class PayloadSkipper:
    """Skips the payload of a message that its header forbids, without buffering it.

    The line break that may stand before a payload counts only if the checksum says so (see `find_payload`), so a
    payload that starts with one is hashed twice.
    """

    def __init__(self, size: int, checksum: bytes = b"") -> None:
        """With a checksum, `size` must be larger than WHOLE_BYTES."""
        self._size = self._left = size
        self._checksum = checksum if len(checksum) == SHA1_DIGITS else b""
        self._shift = 0
        """The length of the line break before the payload, if it is one."""
        self._plain: _Hash | None = None
        self._shifted: _Hash | None = None
        self.done = False

    def feed(self, block: Block, position: int) -> int:
        """The position up to which the payload is skipped. Unless done, the rest of the block comes again."""
        if self._checksum and self._left == self._size:
            if len(block) - position < 2:
                return position
            self._begin(block[position], block[position + 1])
        end = min(len(block), position + self._left)
        self._update(block, position, end)
        self._left -= end - position
        return end if self._left else self._finish(block, end)

    def _begin(self, first: int, second: int) -> None:
        self._shift = 1 if first == LF else 2 * (first == CR and second == LF)
        if self._shift:
            self._plain, self._shifted = sha1(usedforsecurity=False), sha1(usedforsecurity=False)

    def _update(self, block: Block, position: int, end: int) -> None:
        if self._plain and self._shifted:
            view = memoryview(block)
            self._plain.update(view[position:end])
            begins = self._left == self._size
            self._shifted.update(view[position + self._shift * begins : end])

    def _finish(self, block: Block, end: int) -> int:
        self.done = True
        if not self._plain or not self._shifted or self._matches(self._plain):
            return end
        if len(block) - end < self._shift:
            self.done = False
            return end
        self._shifted.update(memoryview(block)[end : end + self._shift])
        return end + self._shift if self._matches(self._shifted) else end

    def _matches(self, digest: _Hash) -> bool:
        return digest.hexdigest().encode() == self._checksum
