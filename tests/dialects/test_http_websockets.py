"""WebSocket upgrades: which requests are accepted, for which dialect, and the errors of the others."""

from __future__ import annotations

import json

import pytest

from dialects.feed import Feeder, in_two
from kit.http import read_all, request
from kit.websocket import PING, frame, read_frames, upgrade, welcome
from polycast.dialects.nanomsg.session import PubWebSocketSession, SubWebSocketSession
from polycast.dialects.registry import HTTP
from polycast.dialects.session import SessionContext
from polycast.dialects.ubre.session import UbreWebSocketSession
from polycast.model import Event, Refused, Reply, Subscribe, Upgrade

PUB, SUB = "pub.sp.nanomsg.org", "sub.sp.nanomsg.org"


def fed(*parts: bytes) -> Feeder:
    feeder = Feeder(HTTP.session(SessionContext()))
    for part in parts:
        feeder.give(part)
    return feeder


def replies(feeder: Feeder) -> bytes:
    return b"".join(event.data for event in feeder.events if isinstance(event, Reply))


def upgraded(events: list[Event]) -> Upgrade:
    [found] = [event for event in events if isinstance(event, Upgrade)]
    return found


@pytest.mark.parametrize(
    ("path", "offered", "taken", "dialect", "session"),
    [
        ("/ubre", "", "", "ubre", UbreWebSocketSession),
        ("/ubre", "ubre", "ubre", "ubre", UbreWebSocketSession),
        ("/ubre", "chat, ubre", "ubre", "ubre", UbreWebSocketSession),
        ("/ubre", "chat", "", "ubre", UbreWebSocketSession),
        ("/ubre?x=%20", "", "", "ubre", UbreWebSocketSession),
        ("/", PUB, PUB, "nanomsg", PubWebSocketSession),
        ("/any/where", SUB, SUB, "nanomsg", SubWebSocketSession),
        ("/ubre", f"ubre,{SUB} , {PUB}", SUB, "nanomsg", SubWebSocketSession),
    ],
)
def test_endpoints(path: str, offered: str, taken: str, dialect: str, session: type) -> None:
    feeder = fed(upgrade(path, offered))
    assert feeder.events[0] == Reply(welcome(taken))
    assert upgraded(feeder.events).dialect == dialect
    assert type(feeder.session) is session


def test_offers_on_several_lines() -> None:
    lines = f"Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: {PUB}\r\n"
    assert fed(upgrade("/", extra=lines)).events[0] == Reply(welcome(PUB))


def test_case_does_not_matter() -> None:
    loud = upgrade().replace(b"Upgrade: websocket", b"UPGRADE: WebSocket").replace(b": Upgrade", b": foo, UPGRADE")
    assert fed(loud).events[0] == Reply(welcome())


def test_nothing_is_compressed() -> None:
    offer = upgrade(extra="Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n")
    assert fed(offer).events[0] == Reply(welcome())


def test_the_new_session_opens() -> None:
    kinds = [type(event) for event in fed(upgrade("/", PUB)).events]
    assert kinds == [Reply, Upgrade, Subscribe]


@pytest.mark.parametrize(
    ("query", "topics"),
    [
        ("", []),
        ("?publishes=", []),
        ("?publishes=orders,chat", ["orders", "chat"]),
        ("?publishes=a%20b%2Cc&x=1&publishes=%C3%A9", ["a b", "c", "é"]),
    ],
)
def test_a_client_names_the_topics_it_publishes(query: str, topics: list[str]) -> None:
    feeder = fed(upgrade("/ubre" + query))
    commands, rest = read_frames(replies(feeder).removeprefix(welcome()))
    assert [json.loads(each.payload) for each in commands] == [{"subscribe": topic} for topic in topics]
    assert rest == b""


def test_frames_right_behind_the_request() -> None:
    data = upgrade() + frame(PING, b"1") + frame(PING, b"2")
    for cut in range(len(data) + 1):
        assert replies(fed(*in_two(data, cut))) == welcome() + b"\x8a\x011\x8a\x012", f"cut at {cut}"


def test_a_long_frame_after_the_request_gives_its_length() -> None:
    received = HTTP.session(SessionContext()).receive(upgrade() + frame(2, b"x" * 300)[:10], 0.0)
    assert (received.consumed, received.frame_bytes) == (len(upgrade()), 308)


def test_pages_first_then_a_websocket() -> None:
    feeder = fed(request("GET", "/x") + upgrade() + frame(PING))
    assert replies(feeder).endswith(welcome() + b"\x8a\x00")


# -- no entry --------------------------------------------------------------------------------------------

PLAIN = upgrade()
VERSION = b"Sec-WebSocket-Version: 13\r\n"
KEY = b"Sec-WebSocket-Key"
NO_ENTRY = {
    "elsewhere": (upgrade("/elsewhere"), 400, b"/ubre"),
    "a sub-protocol nobody knows": (upgrade("/", "pair.sp.nanomsg.org"), 400, b"pub.sp.nanomsg.org"),
    "version 8": (upgrade(version="8"), 426, VERSION),
    "no version": (PLAIN.replace(VERSION, b""), 426, VERSION),
    "no key": (PLAIN.replace(KEY, b"X"), 400, KEY),
    "a short key": (upgrade(key=b"c2hvcnQ="), 400, KEY),
    "a key that is no base64": (upgrade(key=b"!" * 24), 400, KEY),
    "two keys": (upgrade(extra="Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), 400, KEY),
    "no connection": (PLAIN.replace(b"n: Upgrade", b"n: keep-alive"), 400, b"Connection: Upgrade"),
    "HTTP/1.0": (PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"), 426, b"\r\nUpgrade: websocket\r\n"),
    "post": (PLAIN.replace(b"GET", b"POST"), 405, b"\r\nAllow: GET\r\n"),
    "a query that is no UTF-8": (upgrade("/ubre?publishes=%ff"), 400, b"invalid query"),
}


@pytest.mark.parametrize(("sent", "status", "expected"), NO_ENTRY.values(), ids=NO_ENTRY)
def test_refused_upgrades(sent: bytes, status: int, expected: bytes) -> None:
    feeder = fed(sent)
    assert isinstance(feeder.events[0], Refused)
    assert read_all(replies(feeder)) == [status]
    assert expected in replies(feeder)
    assert not any(isinstance(event, Upgrade) for event in feeder.events)


def test_the_connection_stays_for_another_try() -> None:
    feeder = fed(upgrade("/elsewhere") + upgrade())
    assert replies(feeder).endswith(welcome())
