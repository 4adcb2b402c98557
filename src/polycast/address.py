"""Addresses as users write them: `tcp://HOST:PORT`, `tls://HOST:PORT`, `ipc:///path`, `ws://HOST:PORT/path` and
`wss://HOST:PORT/path`; options behind a `?`. `tls+tcp://` is nanomsg's and nng's way to write `tls://`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from polycast.errors import UsageError

SCHEMES = ("tcp", "tls", "ipc", "ws", "wss")
WEB = ("ws", "wss")
"""WebSocket: there is a path behind the port."""
ALSO = {"tls+tcp": "tls"}
"""Other names of schemes."""
UNDER = {"tls": "tcp", "wss": "ws"}
"""What is spoken inside of TLS."""
SECURE = tuple(UNDER)
PORT_LIMIT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = self.path if self.scheme == "ipc" else f"{host}:{self.port}{self.path}"
        options = "?" + urlencode(self.options) if self.options else ""
        return f"{self.scheme}://{place}{options}"


def parse_address(text: str, default_scheme: str = "") -> Address:
    """`default_scheme` lets `HOST:PORT` stand alone where only one scheme makes sense."""
    if "://" not in text and default_scheme:
        text = f"{default_scheme}://{text}"
    written, separator, rest = text.partition("://")
    scheme = ALSO.get(written, written)
    place, _, query = rest.partition("?")
    if not separator or scheme not in SCHEMES:
        raise UsageError(f"{text!r} is no address", "write tcp://HOST:PORT, tls://HOST:PORT or ipc:///path")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if scheme == "ipc":
        if not place.startswith("/"):
            raise UsageError(f"{text!r}: the path must be absolute", "three slashes: ipc:///run/polycast.sock")
        return Address(scheme, path=place, options=options)
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]/]+)):([0-9]{1,5})(/.*)?", place)
    path = (match and match[4]) or ""
    if match is None or int(match[3]) > PORT_LIMIT or (scheme not in WEB and path.strip("/")):
        raise UsageError(f"{text!r} is no address", f"write {scheme}://HOST:PORT, PORT from 0 to {PORT_LIMIT}")
    return Address(scheme, match[1] or match[2], int(match[3]), path if scheme in WEB else "", options)
