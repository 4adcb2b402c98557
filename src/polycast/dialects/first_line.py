"""The first line of a connection: detects a web browser at the listener of another dialect.

Any web page can make a browser connect to any port and send a request with a body of its choice:

    POST / HTTP/1.1 CRLF   Origin: ... CRLF   CRLF   pub valve.open 1 1 LF

A dialect that skips unknown lines would read the body as messages. The first line always identifies the browser: a
method, a target, and the version of HTTP. With TLS, the first bytes of the ClientHello do; its session ticket is
chosen by the server that the page came from.
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
"""A TLS record with a handshake, of any version since SSL 3."""
SHOWN_BYTES = 80


def is_own(block: Block, limit: int, http: Callable[[], str]) -> bool:
    """True: the block does not start like HTTP or TLS. False: undecided until the line is complete.

    A line longer than `limit` is not checked: the dialect refuses it for its length. `http` returns the addresses
    of the http listener, for the error.
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
    possible = METHOD.fullmatch(method) and VERSION_BEGIN.startswith(version[: len(VERSION_BEGIN)].upper())
    return len(line) == longest or not (possible or HELLO.startswith(line))
