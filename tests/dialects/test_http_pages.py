"""HTTP pages: requests, pipelining, and responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.feed import NOW, Feeder, one_by_one
from kit.http import get, read_all, request
from polycast.dialects.registry import HTTP
from polycast.dialects.session import Page, SessionContext
from polycast.dialects.web.http import HEADERS_AT_MOST, PIPELINED
from polycast.dialects.web.plans import QUERY_FIELDS_AT_MOST
from polycast.errors import PeerError, TimeoutPeerError
from polycast.model import Closing, Limits, Refused, Reply


class Shelf:
    """Pages, and who asked for them."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    def __call__(self, path: str) -> Page | None:
        self.requested.append(path)
        return Page(b"<p>", "text/html", headers=(("X-Odd", "1"),)) if path == "/a b" else None


def replies(feeder: Feeder) -> bytes:
    return b"".join(event.data for event in feeder.events if isinstance(event, Reply))


def fed(*parts: bytes, shelf: Shelf | None = None, limits: Limits | None = None) -> Feeder:
    feeder = Feeder(HTTP.session(SessionContext(limits or Limits(), pages=shelf or Shelf())))
    for part in parts:
        feeder.give(part)
    return feeder


HEADERS = [
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Content-Length: 3",
    "Expect: 100-continue",
    "Connection: close",
    "Transfer-Encoding: chunked",
    "Upgrade: h2c",
    "X: é",
]


def test_a_page_with_its_own_headers() -> None:
    response = replies(fed(get("/a%20b?x=1")))
    head, _, body = response.partition(b"\r\n\r\n")
    assert body == b"<p>"
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: text/html",
        b"Content-Length: 3",
        b"Cache-Control: no-store",
        b"X-Odd: 1",
        b"Date: Tue, 14 Nov 2023 22:13:20 GMT",
    ]


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("//a/b", "//a/b"),
        ("/a%2Fb", "/a/b"),
        ("/%ff", "/\ufffd"),
        ("http://host:80/a?b", "/a"),
        ("http://host", "/"),
        ("nonsense", ""),
        ("*", ""),
    ],
)
def test_paths(target: str, path: str) -> None:
    shelf = Shelf()
    fed(get(target), shelf=shelf)
    assert shelf.requested == [path]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "TRACE", "CONNECT", "BREW"])
def test_pages_are_for_looking_at(method: str) -> None:
    feeder = fed(request(method, "/a%20b"))
    assert replies(feeder).startswith(b"HTTP/1.1 405 ") and b"\r\nAllow: GET, HEAD, OPTIONS\r\n" in replies(feeder)
    assert feeder.events[0] == Refused("Method Not Allowed")


def test_an_upgrade_to_something_else_is_passed_over() -> None:
    assert read_all(replies(fed(get("/a%20b", "Upgrade: h2c", "Connection: Upgrade")))) == [200]


def test_handshaken_when_a_request_is_whole() -> None:
    feeder = fed(get("/")[:-1])
    assert not feeder.session.handshake_done
    feeder.give(b"\n")
    assert feeder.session.handshake_done


# -- many requests ---------------------------------------------------------------------------------------

THREE = get("/a%20b") + request("POST", "/", "Content-Length: 4", body=b"GET ") + get("/x")


def test_pipelined_requests_get_responses_in_order() -> None:
    assert read_all(replies(fed(THREE))) == [200, 405, 404]
    assert read_all(replies(fed(*one_by_one(THREE)))) == [200, 405, 404]


def test_pipelined_requests_share_a_page() -> None:
    shelf = Shelf()
    feeder = fed(get("/a%20b") * 10, shelf=shelf)
    assert (shelf.requested, read_all(replies(feeder))) == (["/a b"], [200] * 10)
    feeder.give(get("/a%20b"))
    assert shelf.requested == ["/a b"] * 2


def test_too_many_at_once_have_to_come_again() -> None:
    feeder = fed(get("/x") * (PIPELINED + 1))
    responses = replies(feeder)
    assert read_all(responses) == [404] * PIPELINED
    assert responses.count(b"Connection: close") == 1
    assert feeder.events[-1] == Closing()
    slow = fed(*[get("/x")] * (PIPELINED + 1))
    assert not slow.closed and read_all(replies(slow)) == [404] * (PIPELINED + 1)


# -- last words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "error", "status"),
    [
        (b"", TimeoutPeerError("no handshake"), 0),
        (b"", None, 0),
        (get("/"), TimeoutPeerError("idle"), 0),
        (get("/"), None, 0),
        (b"GET", TimeoutPeerError("no handshake"), 408),
        (get("/") + b"GET", None, 503),
        (request("POST", "/", "Content-Length: 9"), TimeoutPeerError("idle"), 408),
    ],
)
def test_closing_bytes(sent: bytes, error: PeerError | None, status: int) -> None:
    words = fed(sent).session.closing_bytes(error)
    assert read_all(words) == ([status] if status else [])
    assert not words or b"\r\nConnection: close\r\n" in words


@given(
    st.sampled_from(["GET", "HEAD", "POST", "CONNECT", "get", "G(T"]),
    st.sampled_from(["/", "/ubre", "*", "a:80", "http://x/ubre", "/%", "/ubre?publishes=%zz&&=;"]),
    st.sampled_from(["0.9", "1.0", "1.1", "1.9", "2.0"]),
    st.lists(st.sampled_from(HEADERS), max_size=6),
)
def test_every_request_has_a_response(method: str, target: str, version: str, headers: list[str]) -> None:
    feeder = fed(request(method, target, *headers, body=b"abc", version=version))
    words = feeder.closing_bytes() if isinstance(feeder.events[-1], Closing) and feeder.events[-1].error else b""
    assert replies(feeder) + words


def test_closing_bytes_for_a_head_request() -> None:
    words = fed(request("HEAD", "/", "Content-Length: 9")).session.closing_bytes(None)
    assert words.endswith(b"\r\n\r\n")


def test_a_parse_error_is_cut() -> None:
    feeder = fed(b"x" * 60_000 + b"\r\n\r\n")
    assert isinstance(feeder.events[-1], Closing) and len(str(feeder.events[-1].error)) < 200


def test_a_head_that_drips_is_searched_once() -> None:
    """Ends are found wherever they are cut, although what was searched is not searched again."""
    for data in (get("/x"), get("/x").replace(b"\r\n", b"\n")):
        feeder = fed(*one_by_one(data[:-1]))
        assert feeder.events == []
        feeder.give(data[-1:])
        assert read_all(replies(feeder)) == [404]


def test_the_clock_is_the_one_that_came_with_the_bytes() -> None:
    [_, reply] = HTTP.session(SessionContext()).receive(get("/"), NOW + 86_400).events
    assert isinstance(reply, Reply) and b"\r\nDate: Wed, 15 Nov 2023 22:13:20 GMT\r\n" in reply.data


@pytest.mark.parametrize("line", ["X: y", " continued"])
def test_a_request_with_too_many_headers_is_refused_before_they_are_parsed(line: str) -> None:
    """Tens of thousands of headers fit into a head, and would take a quarter of a second to parse."""
    most = ["X: y", *[line] * (HEADERS_AT_MOST - 2)]  # besides Host
    good, bad = fed(get("/", *most)), fed(get("/", *most, line))
    assert read_all(replies(good)) == [404] and not good.closed
    assert bad.closing_bytes().startswith(b"HTTP/1.1 431 ")


def test_a_path_with_too_many_query_fields_is_refused_before_they_are_parsed() -> None:
    most = "&".join(["%1=%1"] * QUERY_FIELDS_AT_MOST)
    assert read_all(replies(fed(get(f"/?{most}"), get(f"/?{most}&")))) == [404, 400]


@pytest.mark.parametrize(
    "sent",
    [
        get("/", "Authorization : Bearer SECRET"),
        b"GET /?token=SECRET HTTP/1.1 x\r\n\r\n",
        b'{"topics": ["a"], "token": "SECRET"}\n\n',
    ],
)
def test_a_parse_error_quotes_no_token(sent: bytes) -> None:
    """It goes to the log of the broker."""
    [closing] = fed(sent).events
    assert isinstance(closing, Closing)
    assert str(closing.error).startswith("not HTTP/1.1: ") and "SECRET" not in str(closing.error)
