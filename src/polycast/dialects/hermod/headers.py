"""The headers of `hermod`: where they end, what they say, and what is answered to a bad one.

A header ends where its JSON object ends: braces count, except in strings.
"""

from __future__ import annotations

import re
import sys
from enum import Enum, auto
from typing import Any

import msgspec

from polycast.dialects.hermod.scan import sha1_of
from polycast.dialects.json_values import UNSET, cut, shown
from polycast.errors import ForbiddenError, LimitError, PeerError, ProtocolError, TimeoutPeerError, UsageError
from polycast.model import Block, Limits, Pattern, parse_pattern

CR, LF, QUOTE, OPENING = b'\r\n"{'
SHA1_DIGITS = 40
FLAT = re.compile(rb'\{[^{}"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^{}"]*+)*+\}', re.DOTALL)
MARK = re.compile(rb'["{}]')
QUOTED = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
SPACE = re.compile(rb"[ \t\r\n]*+")
FORBIDDEN = "Forbidden"
"""What is counted, and told, where somebody may not do what it wants to."""


# -- errors ----------------------------------------------------------------------------------------------


class HermodError(ProtocolError):
    """`code` is what the peer is told."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class HugeSizeError(HermodError):
    """A size past every limit, with so many digits that it is told in part only."""

    kind = LimitError.kind


class TokenError(HermodError):
    """A token that nobody has, or nobody has any more: neither is told."""

    kind = "token"

    def __init__(self) -> None:
        super().__init__(401, "Unauthorized")


CODES: dict[type[PeerError], int] = {
    ProtocolError: 400,
    ForbiddenError: 403,
    LimitError: 413,
    TimeoutPeerError: 503,
}


def to_code(error: PeerError) -> int:
    return error.code if isinstance(error, HermodError) else CODES.get(type(error), 400)


# -- where a header ends ---------------------------------------------------------------------------------


class HeaderEnd:
    """Looks for the end of a header. When the block comes again with more behind it, it goes on where it was."""

    def __init__(self) -> None:
        self._seen = 0
        self._depth = 0
        self._in_string = False

    @property
    def begun(self) -> bool:
        return self._seen > 0

    def find(self, block: Block, position: int, limit: int) -> int:
        """The position after the object that begins here; 0 while it is not all there."""
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
        """Where a header that is too long ends, as far as it is there."""
        while at < len(block) and self._depth:
            at, before = self._step(block, at, len(block)), at
            if at == before:
                return len(block)
        return at

    def _step(self, block: Block, at: int, stop: int) -> int:
        """To the next byte that means something, and past it."""
        if self._in_string:
            match = QUOTED.match(block, at, stop)
            at = match.end() if match else at
            if at < stop and block[at] == QUOTE:
                self._in_string = False
                return at + 1
            return at  # a backslash at the very end waits for what it stands before
        mark = MARK.search(block, at, stop)
        if mark is None:
            return stop
        self._in_string = mark[0] == b'"'
        self._depth += (mark[0] == b"{") - (mark[0] == b"}")
        return mark.end()


def after_space(block: Block, position: int) -> int:
    match = SPACE.match(block, position)
    return match.end() if match else position


# -- what it says ----------------------------------------------------------------------------------------


class Header(msgspec.Struct):
    """Every key there is. Which of them are there says what kind of header it is.

    Those that do not belong to that kind are not looked at."""

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
    ask: Any = UNSET
    id: Any = UNSET
    body: msgspec.Raw | msgspec.UnsetType = UNSET
    format: Any = UNSET
    window: Any = UNSET
    batch: Any = UNSET
    from_: Any = msgspec.field(name="from", default=UNSET)
    status: Any = UNSET
    sequence: Any = UNSET
    code: Any = UNSET
    message: Any = UNSET


class Kind(Enum):
    MESSAGE = auto()
    COUNT = auto()
    START = auto()
    END = auto()
    STAGE = auto()
    COMMIT = auto()
    ABORT = auto()
    TOPICS = auto()
    ASK = auto()
    STATUS = auto()


BATCH_TYPES = {
    "Count": Kind.COUNT,
    "Start": Kind.START,
    "End": Kind.END,
    "Stage": Kind.STAGE,
    "Commit": Kind.COMMIT,
    "Abort": Kind.ABORT,
}
DECODER = msgspec.json.Decoder(Header)


def read_header(block: Block, position: int, end: int) -> Header:
    try:
        return DECODER.decode(str(memoryview(block)[position:end], "utf-8"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HermodError(400, f"a header must be a JSON object in UTF-8: {error}") from error


def kind_of(header: Header) -> Kind:
    """A payload is never taken for a header: what tells of one comes first."""
    if header.payload_size is not UNSET or header.checksum is not UNSET:
        return Kind.STAGE if header.batch_type == "Stage" else Kind.MESSAGE
    if header.topics is not UNSET:
        return Kind.TOPICS
    if header.batch_type is not UNSET:
        return _kind_of_batch(header)
    if header.status is not UNSET:
        return Kind.STATUS
    if header.patterns is not UNSET:
        return Kind.TOPICS
    if header.ask is not UNSET:
        return Kind.ASK
    if header.topic is not UNSET:
        return Kind.MESSAGE
    known = "topic, batch_type, topics, patterns, ask and status"
    raise HermodError(400, f"a header must have one of the keys {known}")


def _kind_of_batch(header: Header) -> Kind:
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
    """From the text form that `model.parse_pattern` reads."""
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


# -- the payload behind it -------------------------------------------------------------------------------


def find_payload(block: Block, start: int, size: int, checksum: bytes) -> tuple[int, int]:
    """Where the payload begins that has this checksum, -1 if nowhere; and where the bytes end that tell.

    It should begin where the header ends, but the protocol's own picture has a line break there.
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
    """How long the line break is that begins here; of a CR at the end of the block one more byte will tell."""
    if block[start] == LF:
        return 1
    if block[start] != CR:
        return 0
    return 1 if start + 1 == len(block) else 2 * (block[start + 1] == LF)
