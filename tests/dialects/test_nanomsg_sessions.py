"""Sessions of `nanomsg` that the vectors do not cover: ipc, WebSocket, prefixes, separators, dialling."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import Feeder, in_two, one_by_one, rows
from kit.nanomsg import PUB, message, to_response, typed
from kit.websocket import BINARY, CLOSE, PING, PONG, TEXT, frame
from polycast.address import Address
from polycast.dialects.nanomsg import session as nanomsg
from polycast.dialects.nanomsg.encoders import encoder_of
from polycast.dialects.nanomsg.settings import NanomsgSettings
from polycast.dialects.session import Session, SessionContext
from polycast.model import Burst, Limits, Prefix, Reply, Subscribe
from vectors import Row

plain = st.sampled_from([b"a|1", b"a|2", b"b|", b"|", b""])
bodies = st.lists(st.one_of(st.binary(max_size=12), plain), max_size=8)


def context(scheme: str = "tcp", dialed: Address | None = None, options: str = "", **own: Any) -> SessionContext:
    return SessionContext(
        Limits(topic_bytes=5, payload_bytes=40),
        scheme,
        {"prefix": options} if options else {},
        {"nanomsg": NanomsgSettings(**own)},
        dialed=dialed,
    )


def fed(session: Session, parts: list[bytes], patient: bool = False) -> Feeder:
    feeder = Feeder(session, patient)
    for part in parts:
        feeder.give(part)
    return feeder


def rows_of(session: Session, *parts: bytes) -> list[Row]:
    return rows(fed(session, list(parts)).events, "nanomsg")


def message_of(body: bytes) -> Row:
    topic, separator, payload = body.partition(b"|")
    is_utf8 = topic.decode(errors="replace").encode() == topic
    divided = separator and topic and len(topic) <= 5 and is_utf8
    return ("message", topic, payload) if divided else ("message", b"", body)


# -- ipc -------------------------------------------------------------------------------------------------


@given(bodies)
def test_ipc_whole_equals_byte_by_byte_equals_any_two_parts(parts: list[bytes]) -> None:
    sent = PUB + b"".join(map(typed, parts))
    expected = [message_of(body) for body in parts]
    assert rows_of(nanomsg.SubSession(context("ipc")), sent) == expected
    for patient in (False, True):
        slow = fed(nanomsg.SubSession(context("ipc")), one_by_one(sent), patient)
        assert rows(slow.events, "nanomsg") == expected
    for cut in range(len(sent)):
        assert rows_of(nanomsg.SubSession(context("ipc")), *in_two(sent, cut)) == expected


@pytest.mark.parametrize("type_", [b"\0", b"\2", b"\xff"])
def test_ipc_another_type_of_message(type_: bytes) -> None:
    found = rows_of(nanomsg.SubSession(context("ipc")), PUB + typed(b"a|1") + type_)
    assert found == [("message", b"a", b"1"), ("closed", b"protocol")]


def test_ipc_a_message_above_the_limit() -> None:
    session = nanomsg.SubSession(context("ipc", message_bytes=3))
    found = rows_of(session, PUB + typed(b"a|1") + typed(b"a|12")[:9])
    assert found == [("message", b"a", b"1"), ("closed", b"limit")]


WRITERS = {"tcp": message, "ipc": typed}


@given(bodies, st.sampled_from(list(WRITERS)))
def test_frames_are_passed_through(parts: list[bytes], scheme: str) -> None:
    sent = b"".join(map(WRITERS[scheme], parts))
    found = fed(nanomsg.SubSession(context(scheme)), [PUB + sent]).events
    for other, write in WRITERS.items():
        sent_on = b"".join(out_of(burst, other) for burst in found if isinstance(burst, Burst))
        assert sent_on == b"".join(map(write, parts))


def out_of(burst: Burst, scheme: str) -> bytes:
    encoded = encoder_of(scheme, "|").encode(burst, [(0, len(burst))])
    joined = b"".join(encoded.blocks)
    assert (encoded.size, encoded.lossy) == (len(joined), 0)
    return joined


def test_as_it_came_takes_no_copy() -> None:
    block = PUB + typed(b"a|1") * 50
    [burst] = fed(nanomsg.SubSession(context("ipc")), [block]).events
    assert isinstance(burst, Burst)
    [piece] = encoder_of("ipc", "|").encode(burst, [(0, 50)]).blocks
    assert isinstance(piece, memoryview)


# -- subscriptions, and topics of bodies -----------------------------------------------------------------


@pytest.mark.parametrize("make", [nanomsg.PubSession, nanomsg.PubWebSocketSession])
def test_a_prefix(make: type[Session]) -> None:
    [event] = [event for event in make(context(options="hea")).open() if isinstance(event, Subscribe)]
    assert event.pattern == Prefix("hea")


def test_another_separator() -> None:
    session = nanomsg.SubSession(context(separator="\0"))
    sent = b"\0\0\0\0\0\0\0\4a|\0b"
    found = fed(session, [PUB + sent])
    assert rows(found.events, "nanomsg") == [("message", b"a|", b"b")]
    [burst] = found.events
    assert isinstance(burst, Burst)
    assert b"".join(encoder_of("tcp", "\0").encode(burst, [(0, 1)]).blocks) == sent
    assert out_of(burst, "tcp") == b"\0\0\0\0\0\0\0\4a||b"


# -- WebSocket, the broker as listener -------------------------------------------------------------------


@given(bodies)
def test_websocket_messages(parts: list[bytes]) -> None:
    sent = b"".join(frame(BINARY, body) for body in parts)
    expected = [message_of(body) for body in parts]
    found = fed(nanomsg.SubWebSocketSession(context()), [sent]).events
    assert rows(found, "nanomsg") == expected
    assert rows_of(nanomsg.SubWebSocketSession(context()), *one_by_one(sent)) == expected
    unmasked = b"".join(frame(BINARY, body, mask=b"") for body in parts)
    assert b"".join(out_of(burst, "ws") for burst in found if isinstance(burst, Burst)) == unmasked


def test_websocket_frames_go_out_as_they_came_without_their_mask() -> None:
    [burst] = fed(nanomsg.SubWebSocketSession(context()), [frame(BINARY, b"a|1") * 50]).events
    assert isinstance(burst, Burst)
    [piece] = encoder_of("ws", "|").encode(burst, [(0, 50)]).blocks
    assert isinstance(piece, memoryview)


def test_websocket_fragments_are_one_message() -> None:
    parts = (frame(BINARY, b"a|", final=False), frame(PING, b"p"), frame(0, b"1"), frame(BINARY, b"b|2"))
    found = rows_of(nanomsg.SubWebSocketSession(context()), *parts)
    assert found == [("reply", frame(PONG, b"p", mask=b"")), ("message", b"a", b"1"), ("message", b"b", b"2")]


def closing_code(session: Session, data: bytes) -> int:
    """The close code for a peer that sends this."""
    words = fed(session, [data]).closing_bytes()
    assert words[0] == 0x80 | CLOSE
    return int.from_bytes(words[2:4], "big")


@pytest.mark.parametrize("make", [nanomsg.SubWebSocketSession, nanomsg.PubWebSocketSession])
def test_websocket_text_is_refused(make: type[Session]) -> None:
    assert closing_code(make(context()), frame(TEXT, b"a|1")) == 1003


def test_websocket_messages_above_the_limit_are_refused_by_their_header() -> None:
    session = nanomsg.SubWebSocketSession(context(message_bytes=3))
    assert rows_of(session, frame(BINARY, b"a|1")) == [("message", b"a", b"1")]
    assert closing_code(session, frame(BINARY, b"a|12")[:6]) == 1009


def test_websocket_payloads_above_the_limit_are_refused() -> None:
    assert closing_code(nanomsg.SubWebSocketSession(context()), frame(BINARY, b"a|" + b"x" * 41)) == 1009


@pytest.mark.parametrize("bad", [frame(TEXT, b"a|1"), frame(BINARY, b"a|" + b"x" * 41)], ids=["text", "too long"])
def test_websocket_messages_before_a_refused_frame_are_accepted(bad: bytes) -> None:
    sent = frame(BINARY, b"a|1") + frame(BINARY, b"b|2") + bad + frame(BINARY, b"c|3")
    *taken, closed = rows_of(nanomsg.SubWebSocketSession(context()), sent)
    assert taken == [("message", b"a", b"1"), ("message", b"b", b"2")]
    assert closed[0] == "closed"


def test_websocket_data_from_a_sub_is_refused() -> None:
    assert closing_code(nanomsg.PubWebSocketSession(context()), frame(BINARY, b"a|1")) == 1008


def test_websocket_a_sub_is_subscribed_when_it_comes() -> None:
    session = nanomsg.PubWebSocketSession(context())
    assert rows(session.open(), "nanomsg") == [("subscribe", b">")]
    assert rows_of(session, frame(PING, b"x")) == [("reply", frame(PONG, b"x", mask=b""))]


# -- WebSocket, the broker dials -------------------------------------------------------------------------

THERE = Address("ws", "::1", 5550, "/some/path")


def dialed(role: str) -> tuple[Session, bytes]:
    """A session and the response that it expects."""
    make = {"pub": nanomsg.to_pub, "sub": nanomsg.to_sub}[role]
    session = make(context("ws", THERE))
    [reply] = session.open()
    assert isinstance(reply, Reply)
    request_line, *lines = reply.data.decode().removesuffix("\r\n\r\n").split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    protocol = {"pub": "sub.sp.nanomsg.org", "sub": "pub.sp.nanomsg.org"}[role]
    assert request_line == "GET /some/path HTTP/1.1"
    assert fields["host"] == "[::1]:5550"
    assert fields["sec-websocket-protocol"] == protocol
    key = fields["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    return session, to_response(base64.b64encode(hashlib.sha1(key).digest()).decode(), protocol)


def test_a_dialling_sub_reads_messages_after_the_response() -> None:
    for whole in (True, False):
        session, response = dialed("sub")
        assert not session.handshake_done
        sent = response + frame(BINARY, b"a|1", mask=b"") + frame(BINARY, b"2", mask=b"")
        assert rows_of(session, *([sent] if whole else one_by_one(sent))) == [
            ("message", b"a", b"1"),
            ("message", b"", b"2"),
        ]
        assert session.handshake_done


def test_a_pub_that_dials_is_subscribed_when_the_listener_has_agreed() -> None:
    session, response = dialed("pub")
    assert rows_of(session, response[:-1]) == []
    session, response = dialed("pub")
    assert rows_of(session, response) == [("subscribe", b">")]


def test_frames_of_a_dialling_pub_are_masked() -> None:
    session, response = dialed("pub")
    [event] = fed(session, [response]).events
    assert isinstance(event, Subscribe)
    [burst] = fed(nanomsg.SubWebSocketSession(context()), [frame(BINARY, b"a|1") + frame(BINARY, b"")]).events
    assert isinstance(burst, Burst)
    sent = b"".join(event.encoder.encode(burst, [(0, 2)]).blocks)
    mask, again = sent[2:6], sent[11:15]
    assert sent == frame(BINARY, b"a|1", mask=mask) + frame(BINARY, b"", mask=again)
    assert mask != again, "every frame has a mask of its own"


def test_a_dialler_refuses_masked_frames() -> None:
    session, response = dialed("sub")
    assert rows_of(session, response + frame(BINARY, b"a|1")) == [("closed", b"protocol")]


def test_no_frame_is_sent_before_the_handshake() -> None:
    session, _ = dialed("sub")
    assert session.closing_bytes(None) == b""
