"""The headers of SP, which both sides send first.

00 'S' 'P' 00, type (2 bytes: PUB 0020, SUB 0021), 00 00
"""

from __future__ import annotations

from struct import Struct

from polycast.errors import ProtocolError

MAGIC = b"\0SP\0"
KIND = Struct(">HH")
SIZE = len(MAGIC) + KIND.size
PUB, SUB = 0x20, 0x21
KINDS = {PUB: "PUB", SUB: "SUB"}


def to_header(kind: int) -> bytes:
    return MAGIC + KIND.pack(kind, 0)


def check_header(head: bytes, kind: int) -> None:
    """Raises unless this is the header of a socket of this type, or the start of one."""
    expected = to_header(kind)
    if expected.startswith(head):
        return
    if not head.startswith(MAGIC[: len(head)]):
        raise ProtocolError(f"{head!r} is not the start of nanomsg, which is {MAGIC!r}")
    if head[4:6] != expected[4 : len(head)][:2]:
        found = KINDS.get(int.from_bytes(head[4:6], "big"), f"type {head[4:6].hex()}")
        raise ProtocolError(f"a socket of {found} where only {KINDS[kind]} sockets can connect")
    raise ProtocolError(f"{head[6:].hex()} in the reserved bytes of the header, which must be 0000")
