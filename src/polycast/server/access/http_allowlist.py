"""The `Host` and `Origin` headers that HTTP requests may have.

A site can resolve a name of its own to any address, such as 127.0.0.1 (DNS rebinding). A browser then treats the
broker as part of that site, whose pages can read the responses. Only the `Host` of a request reveals it.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address

from polycast.address import PORT_LIMIT
from polycast.errors import UsageError
from polycast.server.access.settings import AccessSettings

ANY = "*"
AUTHORITY = r"(\[[0-9a-f:.]+\]|[0-9a-z_-]+(?:\.[0-9a-z_-]+)*)\.?(?::([0-9]*))?"
HOST = re.compile(AUTHORITY)
ORIGIN = re.compile(rf"([a-z][a-z0-9+.-]*)://{AUTHORITY}")
DEFAULT_PORTS = {"http": "80", "https": "443"}


class HttpAllowlist:
    def __init__(self, settings: AccessSettings) -> None:
        """The settings were validated when they were loaded."""
        self._hosts = {"localhost", socket.gethostname().lower(), *map(parse_host, settings.hosts)}
        self._origins = set(map(parse_origin, settings.origins))

    def allows_host(self, host: str, own: str) -> bool:
        """Whether the `Host` of a request is a name of the broker; `own` is the host of the listener.

        An IP address is always allowed: DNS cannot rebind it.
        """
        found = HOST.fullmatch(host.lower())
        if found is None or ANY in self._hosts:
            return ANY in self._hosts
        name, port = found.groups()
        return is_address(name) or name == own.lower() or not self._hosts.isdisjoint((name, f"{name}:{port}"))

    def allows_origin(self, origin: str, host: str, secure: bool) -> bool:
        """Whether pages from `origin` may call: those of the broker itself, and those in the settings.

        A proxy may terminate TLS: without TLS here, the broker's own pages may have been loaded over https.
        """
        if ANY in self._origins:
            return True
        found = to_origin(origin)
        own = [to_origin(f"{scheme}://{host}") for scheme in (("https",) if secure else ("http", "https"))]
        return found != "" and (found in self._origins or found in own)


def is_address(name: str) -> bool:
    try:
        return bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


def to_origin(text: str) -> str:
    """As browsers send it: in lower case, without the default port of the scheme; empty: not an origin."""
    match = ORIGIN.fullmatch(text.lower())
    if match is None:
        return ""
    scheme, name, port = match.groups()
    return f"{scheme}://{name}" + (f":{port}" if port and port != DEFAULT_PORTS.get(scheme) else "")


# -- from the settings -----------------------------------------------------------------------------------


def parse_host(text: str) -> str:
    match = HOST.fullmatch(text.lower())
    if text == ANY:
        return ANY
    if match is None or not _is_port(match[2]):
        raise UsageError(
            f"{text!r} is not a name", "write HOST or HOST:PORT, as in broker.example; '*' is any name"
        )
    return f"{match[1]}:{match[2]}" if match[2] else match[1]


def parse_origin(text: str) -> str:
    match = ORIGIN.fullmatch(text.lower())
    if text == ANY:
        return ANY
    if match is None or not _is_port(match[3]):
        raise UsageError(f"{text!r} is not an origin", _cure(text))
    return to_origin(text)


def _is_port(digits: str | None) -> bool:
    return not digits or 0 < int(digits) <= PORT_LIMIT


def _cure(text: str) -> str:
    if text == "null":
        return "sandboxed frames of every site are 'null'; serve the page over HTTP and write its origin"
    if HOST.fullmatch(text.lower()):
        return f"an origin begins with its scheme: write http://{text} or https://{text}"
    begun = ORIGIN.match(text.lower())
    if begun and text[begun.end() : begun.end() + 1] == "/":
        return f"an origin has no path: write {to_origin(begun[0])}"
    return "write https://HOST or https://HOST:PORT; '*' is any site"
