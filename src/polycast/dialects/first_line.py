"""The first line of a connection: detects web browsers and hermod clients at the listener of another dialect.

Any web page can make a browser connect to any port and send a request with a body of its choice:

    POST / HTTP/1.1 CRLF   Origin: ... CRLF   CRLF   pub valve.open 1 1 LF

A dialect that skips unknown lines would read the body as messages. The first line always identifies the browser: a
method, a target, and the version of HTTP. With TLS, the first bytes of the ClientHello do; its session ticket is
chosen by the server that the page came from.

A client of hermod waits for a reply. It gets one in hermod, instead of none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from polycast.errors import HermodPeerError, HttpPeerError, TlsPeerError
from polycast.model import Block

METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
VERSION = re.compile(rb"HTTP/[0-9]+(?:\.[0-9]+)?\r?", re.IGNORECASE)
VERSION_BEGIN = b"HTTP/"
HELLO = b"\x16\x03"
"""A TLS record with a handshake, of any version since SSL 3."""
SHOWN_BYTES = 80
HERMOD_HEADS = (b'{"batch_type"', b'{"topics"')
"""How clients of hermod begin. Among the other dialects, only a channel of fanout could begin like this."""
LONGEST_HEAD = max(map(len, HERMOD_HEADS))


def is_own(block: Block, limit: int, http: Callable[[], str]) -> bool:
    """True: the block does not start like HTTP, TLS or hermod. False: undecided until the line is complete.

    A line longer than `limit` is not checked: the dialect refuses it for its length. `http` returns the addresses
    of the http listener, for the error.
    """
    if block[:2] == HELLO:
        raise TlsPeerError
    head = bytes(block[:LONGEST_HEAD])
    if head.startswith(HERMOD_HEADS):
        raise HermodPeerError
    if any(known.startswith(head) for known in HERMOD_HEADS):
        return False
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
