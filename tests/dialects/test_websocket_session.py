"""WebSocket sessions: messages, fragments, pings, close frames, and protocol errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import Feeder, in_two, one_by_one
from kit.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MASK,
    PING,
    PONG,
    TEXT,
    Frame,
    close_frame,
    frame,
    masked,
    read_frames,
)
from polycast.dialects.framing import Reading
from polycast.dialects.session import SessionContext
from polycast.dialects.web.websocket import Frames, WebSocketError, WebSocketSession
from polycast.errors import LimitError, PeerError, ProtocolError, TimeoutPeerError
from polycast.model import Burst, Closing, Format, Received, Reply

LIMIT = 300
KINDS = {TEXT: Format.TEXT, BINARY: Format.BYTES}
Row = tuple[str, bytes]


class Listener(WebSocketSession):
    """A dialect whose messages are the payloads of the frames, without a topic."""

    dialect = "double"

    def __init__(self, client: bool = False) -> None:
        super().__init__(SessionContext(), LIMIT)
        self.client = client

    def read_messages(self, frames: Frames, now: float, reading: Reading) -> None:
        assert len(frames.opcodes) == len(frames.starts) == len(frames.ends) == len(frames.bounds) - 1
        self._check_sendable(frames)
        for start, end, opcode in zip(frames.starts, frames.ends, frames.opcodes, strict=True):
            payload = bytes(frames.block[start:end])
            if payload == b"refuse me":
                raise WebSocketError(1003, "so be it")
            reading.add_message(b"", payload, KINDS[opcode])

    def _check_sendable(self, frames: Frames) -> None:
        """The bytes between the bounds are the frames that a server would send."""
        sendable, rest = read_frames(bytes(frames.block[frames.bounds[0] : frames.bounds[-1]]))
        assert rest == b""
        texts = [bytes(frames.block[i:j]) for i, j in zip(frames.starts, frames.ends, strict=True)]
        assert sendable == [Frame(opcode, text) for opcode, text in zip(frames.opcodes, texts, strict=True)]


def rows(feeder: Feeder) -> list[Row]:
    """Messages one by one; consecutive replies are joined."""
    found: list[Row] = []
    for event in feeder.events:
        match event:
            case Burst():
                found += [(message.format.value, message.payload) for message in event.messages()]
            case Reply(data) if found and found[-1][0] == "reply":
                found[-1] = ("reply", found[-1][1] + data)
            case Reply(data):
                found.append(("reply", data))
            case Closing(error):
                found.append(("closed", error.kind.encode() if error else b""))
            case _:
                raise AssertionError(event)
    return found


def fed(parts: list[bytes] | tuple[bytes, ...], patient: bool = False, client: bool = False) -> Feeder:
    feeder = Feeder(Listener(client), patient)
    for part in parts:
        feeder.give(part)
    return feeder


def outcome(data: bytes) -> list[Row]:
    """The result does not depend on how the bytes are cut."""
    whole = rows(fed([data]))
    for cut in range(len(data) + 1):
        assert rows(fed(in_two(data, cut))) == whole, f"cut at {cut}"
        assert rows(fed(in_two(data, cut), patient=True)) == whole, f"cut at {cut}"
    assert rows(fed(one_by_one(data))) == whole
    return whole


def code_of(data: bytes) -> int:
    """The close code of this input."""
    feeder = fed([data])
    assert rows(feeder)[-1][0] == "closed"
    [(opcode, payload, final)], rest = read_frames(feeder.closing_bytes())
    assert (opcode, final, rest) == (CLOSE, True, b"")
    payload[2:].decode()
    return int.from_bytes(payload[:2], "big")


# -- messages --------------------------------------------------------------------------------------------


def test_texts_and_binaries_in_their_order() -> None:
    sent = frame(TEXT, b"one") + frame(BINARY, b"two") + frame(TEXT, b"") + frame(BINARY, b"\x00" * 200)
    assert outcome(sent) == [("text", b"one"), ("bytes", b"two"), ("text", b""), ("bytes", b"\x00" * 200)]


def test_fragments_are_one_message() -> None:
    sent = (
        frame(TEXT, b"a", final=False)
        + frame(CONTINUATION, b"", final=False)
        + frame(CONTINUATION, b"b", final=False)
        + frame(CONTINUATION, b"c")
        + frame(BINARY, b"d")
    )
    assert outcome(sent) == [("text", b"abc"), ("bytes", b"d")]


def test_control_frames_between_fragments() -> None:
    sent = (
        frame(BINARY, b"a", final=False)
        + frame(PING, b"?")
        + frame(PONG, b"unasked")
        + frame(CONTINUATION, b"b")
        + frame(PING)
    )
    assert outcome(sent) == [("reply", b"\x8a\x01?"), ("bytes", b"ab"), ("reply", b"\x8a\x00")]


def test_consecutive_pings_get_one_reply() -> None:
    feeder = fed([frame(PING, b"1") * 1000 + frame(TEXT, b"x") + frame(PING, b"2")])
    kinds = [type(event) for event in feeder.events]
    assert kinds == [Reply, Burst, Reply]
    assert rows(feeder) == [("reply", b"\x8a\x011" * 1000), ("text", b"x"), ("reply", b"\x8a\x012")]


def test_a_message_may_be_as_long_as_the_limit() -> None:
    assert rows(fed([frame(TEXT, b"x" * LIMIT)])) == [("text", b"x" * LIMIT)]
    halves = frame(TEXT, b"x" * (LIMIT - 1), final=False) + frame(CONTINUATION, b"x")
    assert rows(fed([halves])) == [("text", b"x" * LIMIT)]


def test_a_long_frame_declares_its_length() -> None:
    for sent in (frame(TEXT, b"x" * LIMIT), frame(TEXT, b"x" * 200, final=False)):
        received = Listener().receive(sent[:10], 0.0)
        assert received == Received([], 0, len(sent))


def test_messages_before_an_error_count() -> None:
    sent = frame(TEXT, b"one") + frame(TEXT, b"two") + frame(TEXT, b"refuse me") + frame(TEXT, b"three")
    assert outcome(sent) == [("text", b"one"), ("text", b"two"), ("closed", b"protocol")]
    assert code_of(sent) == 1003


# -- close frames ----------------------------------------------------------------------------------------

BEHIND = frame(TEXT, b"not looked at")


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999])
def test_a_close_is_echoed_with_its_code(code: int) -> None:
    sent = frame(TEXT, b"last") + close_frame(code, "gründlich".encode()) + BEHIND
    assert outcome(sent) == [("text", b"last"), ("reply", close_frame(code, mask=b"")), ("closed", b"")]


def test_a_close_without_a_code() -> None:
    assert outcome(frame(CLOSE) + BEHIND) == [("reply", b"\x88\x00"), ("closed", b"")]


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535])
def test_a_close_with_a_reserved_code(code: int) -> None:
    assert outcome(close_frame(code) + BEHIND) == [("closed", b"protocol")]
    assert code_of(close_frame(code)) == 1002


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 1001),
        (WebSocketError(1007, "no UTF-8"), 1007),
        (LimitError("a payload", 9, 1, "limits.payload_bytes"), 1009),
        (TimeoutPeerError("too slow"), 1008),
        (ProtocolError("é" * 200), 1008),
    ],
)
def test_closing_bytes(error: PeerError | None, code: int) -> None:
    [(opcode, payload, _)], _ = read_frames(Listener().closing_bytes(error))
    assert (opcode, int.from_bytes(payload[:2], "big")) == (CLOSE, code)
    assert len(payload) <= 125
    assert payload[2:].decode() in (str(error) if error else "the broker stops")


# -- protocol errors -------------------------------------------------------------------------------------

MISTAKES = {
    "no mask": frame(TEXT, b"x", mask=b""),
    "reserved bit 1": frame(TEXT, b"x", reserved=0x40),
    "reserved bit 2": frame(BINARY, b"x", reserved=0x20),
    "reserved bit 3 of a ping": frame(PING, b"x", reserved=0x10),
    "unknown data frame": frame(3, b"x"),
    "unknown control frame": frame(11, b"x"),
    "ping in fragments": frame(PING, b"x", final=False),
    "close in fragments": frame(CLOSE, b"\x03\xe8", final=False),
    "long ping": frame(PING, b"x" * 126),
    "long close": close_frame(1000, b"x" * 124),
    "half a close code": frame(CLOSE, b"\x03"),
    "nothing to continue": frame(CONTINUATION, b"x"),
    "nothing to continue after a whole message": frame(TEXT, b"", final=False)
    + frame(CONTINUATION, b"x")
    + frame(CONTINUATION, b"y"),
    "text within fragments": frame(TEXT, b"x", final=False) + frame(TEXT, b"y"),
    "fragments within fragments": frame(TEXT, b"x", final=False) + frame(BINARY, b"y", final=False),
    "2 bytes for a short length": b"\x81\xfe\x00\x7d" + MASK + b"x" * 125,
    "8 bytes for a short length": b"\x81\xff" + (65_535).to_bytes(8, "big") + MASK,
    "a negative length": b"\x81\xff" + b"\xff" * 8 + MASK,
}


@pytest.mark.parametrize("sent", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_end_with_1002(sent: bytes) -> None:
    assert outcome(frame(TEXT, b"fine") + sent + BEHIND)[-1] == ("closed", b"protocol")
    assert code_of(sent) == 1002


def test_a_reason_that_is_not_utf8() -> None:
    assert code_of(close_frame(1000, b"\xff")) == 1007


@pytest.mark.parametrize(
    "sent",
    [
        frame(TEXT, b"x" * (LIMIT + 1)),
        frame(TEXT, b"x" * LIMIT, final=False) + frame(CONTINUATION, b"y"),
        frame(TEXT, b"x" * (LIMIT + 1), final=False),
        b"\x82\xff" + (1 << 62).to_bytes(8, "big") + MASK,
    ],
    ids=["whole", "together", "a fragment", "huge"],
)
def test_a_message_that_is_too_long_is_refused_at_its_header(sent: bytes) -> None:
    assert rows(fed([sent])) == rows(fed(one_by_one(sent))) == [("closed", b"limit")]
    assert code_of(sent) == 1009


@pytest.mark.parametrize("size", [LIMIT + 1, 70_000, 1 << 62])
def test_a_message_that_is_too_long_is_not_buffered(size: int) -> None:
    wide = size.to_bytes(2, "big") if size < 1 << 16 else size.to_bytes(8, "big")
    feeder = fed(one_by_one(bytes([0x82, 0x80 | (126 if len(wide) == 2 else 127)]) + wide + MASK))
    assert rows(feeder) == [("closed", b"limit")]
    assert feeder.longest_buffer < 2 + len(wide) + len(MASK)


# -- noise -----------------------------------------------------------------------------------------------

frames = st.builds(
    frame,
    st.sampled_from([CONTINUATION, TEXT, TEXT, BINARY, CLOSE, PING, PONG, 3, 12]),
    st.binary(max_size=130),
    st.sampled_from([True, True, False]),
    st.sampled_from([MASK, MASK, MASK, b""]),
    st.sampled_from([0, 0, 0, 0x40]),
)
inputs = st.lists(st.one_of(frames, frames, frames, st.binary(max_size=8)), max_size=8).map(b"".join)


@given(inputs)
def test_noise(data: bytes) -> None:
    found = outcome(data)
    assert all(row[0] != "closed" for row in found[:-1])


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, BINARY]), st.lists(st.binary(max_size=9), min_size=1)), max_size=5)
)
def test_however_messages_are_cut_into_fragments(messages: list[tuple[int, list[bytes]]]) -> None:
    sent = b""
    for opcode, parts in messages:
        for i, part in enumerate(parts):
            sent += frame(CONTINUATION if i else opcode, part, final=i == len(parts) - 1)
            sent += frame(PONG) * (len(part) % 2)
    expected = [(KINDS[opcode].value, b"".join(parts)) for opcode, parts in messages]
    for parts in ([sent], one_by_one(sent)):
        assert rows(fed(parts)) == rows(fed(parts, patient=True)) == expected


# -- the dialling side -----------------------------------------------------------------------------------


def test_a_client_gets_no_masks_and_sends_masks() -> None:
    feeder = fed([frame(TEXT, b"hello", mask=b"") * 2 + frame(PING, b"?", mask=b"")], client=True)
    *messages, (kind, pong) = rows(feeder)
    assert messages == [("text", b"hello")] * 2
    assert (kind, pong[:2], masked(pong[6:], pong[2:6])) == ("reply", b"\x8a\x81", b"?")


def test_the_close_frame_of_a_client_is_masked() -> None:
    words = Listener(client=True).closing_bytes(None)
    assert words[0] == 0x88 and words[1] & 0x80
    assert masked(words[6:], words[2:6])[:2] == (1001).to_bytes(2, "big")


def test_a_client_refuses_masks() -> None:
    assert rows(fed([frame(TEXT, b"x")], client=True)) == [("closed", b"protocol")]
