"""Web sites: by which names the broker may be called over HTTP, and the pages of which sites may call it.

A site can make a name of its own lead to any address, also to 127.0.0.1 (DNS rebinding). A browser then takes the
broker for that site, and the site's pages read what it answers. Only the `Host` of the request shows it.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address

from polycast.address import PORT_LIMIT
from polycast.errors import UsageError
from polycast.server.access.settings import AccessSettings

ANY = "*"
PLACE = r"(\[[0-9a-f:.]+\]|[0-9a-z_-]+(?:\.[0-9a-z_-]+)*)\.?(?::([0-9]*))?"
HOST = re.compile(PLACE)
ORIGIN = re.compile(rf"([a-z][a-z0-9+.-]*)://{PLACE}")
DEFAULT_PORTS = {"http": "80", "https": "443"}


class HttpAllowlist:
    def __init__(self, settings: AccessSettings) -> None:
        """The settings have been checked when they were read."""
        self._hosts = {"localhost", socket.gethostname().lower(), *map(parse_host, settings.hosts)}
        self._origins = set(map(parse_origin, settings.origins))

    def allows_host(self, host: str, own: str) -> bool:
        """Whether `host`, as a request has it, is one of the broker's names; `own` is the listener's.

        An address is no name: nobody can make it lead elsewhere.
        """
        found = HOST.fullmatch(host.lower())
        if found is None or ANY in self._hosts:
            return ANY in self._hosts
        name, port = found.groups()
        return is_address(name) or name == own.lower() or not self._hosts.isdisjoint((name, f"{name}:{port}"))

    def allows_origin(self, origin: str, host: str, secure: bool) -> bool:
        """Whether pages from `origin` may call: those of the broker itself, and those that are listed.

        Without TLS here, a proxy may have taken it off: then the broker's own pages can have come over https.
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
    """As browsers write it, in lower case and without the port that the scheme has; empty: it is not an origin."""
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
        return "every sandboxed frame of every site is 'null'; serve the page over HTTP and write where that is"
    if HOST.fullmatch(text.lower()):
        return f"an origin begins with its scheme: write http://{text} or https://{text}"
    begun = ORIGIN.match(text.lower())
    if begun and text[begun.end() : begun.end() + 1] == "/":
        return f"an origin has no path: write {to_origin(begun[0])}"
    return "write https://HOST or https://HOST:PORT; '*' is any site"
