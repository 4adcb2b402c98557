"""The messages of `ubre`, written and read by hand, and a peer that speaks it on a plain stream."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from typing import Any

from kit.wire import Peer

STREAMING = 0xFFFFFFFF
HEADER = "!BHI"
HEADER_BYTES = 7

WORDS = (
    *(b"{", b"}", b"}\n", b"{}\n", b'"', b"\\", b'{"a":1}\n', b"[]\n", b"\xff\n"),
    *(b'{"publish":"a","body":', b'{"publish":"a","body":"x"}\n', b'{"publish":"a","body":[1]}\n'),
    *(b'{"publish":"a"}\n', b'{"publish": "a", "body": [1, 2]}\n', b'{"publish":"a","body":"\\n"}\n'),
    *(b'{"publish":5}\n', b'{"publish":"toolong"}\n', b'{"subscribe":"a","body":{"serve":true}}\n'),
    *(b'{"unsubscribe":"a"}\n', b'{"request":"a","id":1}\n', b'{"request":1}\n', b'{"success":7}\n'),
    *(b"P\0\1\0\0\0\2a", b"P\0\0\0\0\0\0", b"P\0\1\xff\xff\xff\xffa", b"S\0\1\0\0\0\0a", b"c"),
    *(b"U\0\1\0\0\0\0a", b"R\0\1\0\0\0\1a{", b"s\0\x017\0\0\0\0", b"s\0\1\0\0\0\0007", b"f\0\0\0\0\0\1x"),
    *(b"P\0\6\0\0\0\0", b"P\0\1\0\0\0\x19", b"P\xff\xff\xff\xff\xff\xff"),
)
"""Messages and parts of messages."""


def text(**message: Any) -> str:
    """As `JSON.stringify` writes it."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def line(**message: Any) -> bytes:
    return text(**message).encode() + b"\n"


def frame(kind: str, name: str | bytes, body: bytes = b"", size: int | None = None) -> bytes:
    """`size` is the length to name where it is not that of the body."""
    name = name.encode() if isinstance(name, str) else name
    return struct.pack(HEADER, ord(kind), len(name), len(body) if size is None else size) + name + body


def envelope(route: Any, **body: Any) -> bytes:
    """The body of a request that has its id where others have their route."""
    return text(route=route, **body).encode()


def read_lines(data: bytes) -> list[tuple[bytes, bytes]]:
    """Topic and payload of publications in JSON, whose payloads were bytes."""
    lines = data.split(b"\n")
    assert lines.pop() == b"", "the last line does not end"
    found: list[tuple[bytes, bytes]] = []
    for each in lines:
        message = json.loads(each)
        assert list(message) == ["publish", "body"], each
        found.append((message["publish"].encode(), _from_json(message["body"])))
    return found


def _from_json(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    assert list(body) == ["$base64"], body
    return b64decode(body["$base64"], validate=True)


class UbrePeer(Peer):
    """A peer on a plain stream. `flush` requests an unknown route, and the failure is the fence."""

    _fences = 0

    def __enter__(self) -> UbrePeer:
        return self

    def send_message(self, **message: Any) -> None:
        self.send(line(**message))

    def expect_message(self, **message: Any) -> None:
        self.expect(line(**message))

    def refusal(self, route: str, body: Any) -> str:
        """The reason of a request that fails."""
        self.send_message(request=route, id=1, body=body)
        response = json.loads(self.read_until(b"\n"))
        assert response["fail"] == 1
        return str(response["body"])

    def flush(self) -> None:
        """Whatever was sent has been handled; nothing may have come."""
        self._fences += 1
        self.send_message(request="polycast/fence", id=f"fence {self._fences}")
        self.expect_message(fail=f"fence {self._fences}", body="NotFound")
