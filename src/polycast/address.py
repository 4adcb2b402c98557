"""Addresses: `tcp://HOST:PORT`, `tls://HOST:PORT`, `ipc:///path`, `ws://HOST:PORT/path`, `wss://HOST:PORT/path`,
with options after a `?`. `tls+tcp://` is the nanomsg and nng spelling of `tls://`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from polycast.errors import UsageError

SCHEMES = ("tcp", "tls", "ipc", "ws", "wss")
WEB = ("ws", "wss")
"""WebSocket: a path follows the port."""
ALIASES = {"tls+tcp": "tls"}
"""Aliases of schemes."""
INSIDE_TLS = {"tls": "tcp", "wss": "ws"}
"""The scheme inside TLS."""
SECURE = tuple(INSIDE_TLS)
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
        location = self.path if self.scheme == "ipc" else f"{host}:{self.port}{self.path}"
        options = "?" + urlencode(self.options) if self.options else ""
        return f"{self.scheme}://{location}{options}"


def parse_address(text: str, default_scheme: str = "") -> Address:
    """`default_scheme`: the scheme of a bare `HOST:PORT`."""
    if "://" not in text and default_scheme:
        text = f"{default_scheme}://{text}"
    written, separator, rest = text.partition("://")
    scheme = ALIASES.get(written, written)
    location, _, query = rest.partition("?")
    if not separator or scheme not in SCHEMES:
        raise UsageError(f"{text!r} is not an address", "write tcp://HOST:PORT, tls://HOST:PORT or ipc:///path")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if scheme == "ipc":
        if not location.startswith("/"):
            raise UsageError(f"{text!r}: the path must be absolute", "three slashes: ipc:///run/polycast.sock")
        return Address(scheme, path=location, options=options)
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]/]+)):([0-9]{1,5})(/.*)?", location)
    path = (match and match[4]) or ""
    if match is None or int(match[3]) > PORT_LIMIT or (scheme not in WEB and path.strip("/")):
        raise UsageError(f"{text!r} is not an address", f"write {scheme}://HOST:PORT, PORT from 0 to {PORT_LIMIT}")
    return Address(scheme, match[1] or match[2], int(match[3]), path if scheme in WEB else "", options)


def split_addresses(text: str) -> list[str]:
    """Addresses of several brokers, joined by commas. A comma inside an address is written %2C."""
    found = [each.strip() for each in text.split(",")]
    if not all(found) and len(found) > 1:
        raise UsageError(
            f"{text!r} has an empty address", "join addresses with single commas: tcp://a:7878,tcp://b:7878"
        )
    return found
