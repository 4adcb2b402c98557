"""The handshake of WebSocket (RFC 6455, 4): the request for an upgrade and its response, for both sides."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable

import h11

from polycast.address import Address
from polycast.errors import HttpStatusError, ProtocolError
from polycast.model import Block

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
VERSION = "13"
KEY_BYTES = 16
RESPONSE_BYTES = 16 * 1024
"""The longest response that a client reads."""
MISDIRECTED = 421
"""The status if the `Host` of the request is not a name of the server."""


def accept_key(key: bytes) -> bytes:
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def words_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The comma-separated values of a header."""
    values = b",".join(value for key, value in headers if key == name)
    return [word.strip().decode("latin-1") for word in values.split(b",") if word.strip()]


def with_path(head: bytes) -> bytes:
    """nng sends an empty target instead of `/` if its address has no path."""
    return head.replace(b"GET  HTTP/", b"GET / HTTP/", 1) if head.startswith(b"GET  HTTP/") else head


def is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == KEY_BYTES
    except ValueError:
        return False


def to_host(address: Address) -> str:
    """The value of `Host` for a server at this address."""
    return str(Address("tcp", address.host or "localhost", address.port)).removeprefix("tcp://")


def to_status_error(what: str, status: int, expected: int, host: str) -> HttpStatusError:
    cure = f"; add {host!r} to access.hosts of the broker" if status == MISDIRECTED else ""
    return HttpStatusError(f"{what}: the status is {status}, expected {expected}{cure}", status)


class ClientHandshake:
    """The side that dials: sends `request`, then reads the response."""

    def __init__(self, host: str, path: str, protocol: str = "", token: str = "") -> None:
        self._host = host
        self._protocol = protocol
        self._key = base64.b64encode(secrets.token_bytes(KEY_BYTES))
        headers = [
            ("Host", host),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", self._key.decode()),
            ("Sec-WebSocket-Version", VERSION),
            *([("Sec-WebSocket-Protocol", protocol)] if protocol else []),
            *([("Authorization", f"Bearer {token}")] if token else []),
        ]
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=RESPONSE_BYTES)
        request = h11.Request(method="GET", target=path or "/", headers=headers)
        self.request = self._http.send(request) + self._http.send(h11.EndOfMessage())

    def read(self, block: Block) -> int:
        """The position after the response; 0: unfinished. ProtocolError: the server refused."""
        end = block.find(b"\r\n\r\n")
        if end < 0:
            if len(block) > RESPONSE_BYTES:
                raise ProtocolError(f"the response to the upgrade has no end within {RESPONSE_BYTES:,} bytes")
            return 0
        try:
            self._http.receive_data(bytes(block[: end + 4]))
            response = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise ProtocolError(f"the response to the upgrade is not HTTP: {error}") from error
        self._check(response)
        return end + 4

    def _check(self, response: object) -> None:
        if not isinstance(response, h11.InformationalResponse) or response.status_code != 101:
            status = getattr(response, "status_code", 0)
            raise to_status_error("no upgrade to WebSocket", status, 101, self._host)
        headers = dict(response.headers)
        if headers.get(b"sec-websocket-accept") != accept_key(self._key):
            raise ProtocolError("no upgrade to WebSocket: the response is for another request")
        if headers.get(b"sec-websocket-protocol", b"") != self._protocol.encode():
            raise ProtocolError(f"no upgrade to WebSocket: the sub-protocol {self._protocol!r} was not accepted")
