"""The first line of a connection, where it shows that the peer is a web browser at a port of another dialect.

Any web page can make a browser connect to any port and send a request whose body the page has chosen:

    POST / HTTP/1.1 CRLF   Origin: ... CRLF   CRLF   pub valve.open 1 1 LF

A dialect that passes over lines it does not know would take the body for messages. The first line is the one part
of the request that always gives the browser away: a method, a target, and the version of HTTP. With TLS it is the
first bytes of the ClientHello, whose session ticket is chosen by the server that the page came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from polycast.errors import HttpPeerError, TlsPeerError
from polycast.model import Block

METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
VERSION = re.compile(rb"HTTP/[0-9]+(?:\.[0-9]+)?\r?", re.IGNORECASE)
VERSION_BEGIN = b"HTTP/"
HELLO = b"\x16\x03"
"""A TLS record that holds a handshake, of any version since SSL 3."""
SHOWN_BYTES = 80


def is_own(block: Block, limit: int, http: Callable[[], str]) -> bool:
    """True: the block does not begin like HTTP or TLS. False: the line must come to its end to tell.

    A line longer than `limit` is not looked at any further: the dialect refuses it for its length. `http` tells
    where HTTP is spoken, for the error.
    """
    if block[:2] == HELLO:
        raise TlsPeerError
    longest = limit + len(b"\r\n")
    end = block.find(b"\n", 0, longest)
    line = bytes(block[: end if end >= 0 else longest])
    method, _, rest = line.partition(b" ")
    _, _, version = rest.partition(b" ")
    if end >= 0:
        if METHOD.fullmatch(method) and VERSION.fullmatch(version):
            raise HttpPeerError(line[:SHOWN_BYTES].strip(), http())
        return True
    begun = METHOD.fullmatch(method) and VERSION_BEGIN.startswith(version[: len(VERSION_BEGIN)].upper())
    return len(line) == longest or not (begun or HELLO.startswith(line))
