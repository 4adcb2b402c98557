"""HTTP requests and responses, written and parsed by hand."""

from __future__ import annotations

from typing import NamedTuple

from kit.wire import Peer

DATE = b"Tue, 14 Nov 2023 22:13:20 GMT"


def request(method: str, path: str, *headers: str, body: bytes = b"", version: str = "1.1") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def get(path: str, *headers: str) -> bytes:
    return request("GET", path, *headers)


NOT_FOUND = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n"
    b"Cache-Control: no-store\r\nDate: " + DATE + b"\r\n\r\nno such page\n"
)
"""The response where there is no page, at the fixed time of tests without a broker."""

WORDS = (
    b"GET / HTTP/1.1\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST /x HTTP/1.1\r\n",
    b"POST /topics/a HTTP/1.1\r\n",
    b"GET /topics/a?from=1&limit=2 HTTP/1.1\r\n",
    b"GET /events?pattern=a HTTP/1.1\r\n",
    b"Content-Type: application/json\r\n",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: 300\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"\r\n\r\n",
)


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def read_response(peer: Peer, body: bool = True) -> Response:
    """The next response; `body` is False after HEAD."""
    line, *lines = peer.read_until(b"\r\n\r\n").decode().removesuffix("\r\n\r\n").split("\r\n")
    version, status, _ = line.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = dict(text.lower().split(": ", 1) for text in lines)
    size = int(headers["content-length"]) if body else 0
    while len(peer.read) < size:
        more = peer.socket.recv(1 << 20)
        assert more, "closed before the response was whole"
        peer.read += more
    content, peer.read = peer.read[:size], peer.read[size:]
    return Response(int(status), headers, content)


def read_all(data: bytes) -> list[int]:
    """The statuses of all responses in these bytes, each with a body as long as its header declares."""
    statuses = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        headers = dict(text.lower().split(": ", 1) for text in lines)
        statuses.append(int(line.split(" ")[1]))
        data = data[int(headers.get("content-length", 0)) :]
    return statuses
