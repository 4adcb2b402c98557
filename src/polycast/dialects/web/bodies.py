"""Bodies of HTTP requests: a length, or chunks (RFC 9112, 6 and 7.1).

    SIZE in hex digits [; extension] CRLF  the bytes CRLF  ...  0 CRLF  [trailer CRLF]...  CRLF

A body with a length stays in the block until it is complete, like the frames of any dialect; so does each chunk.
Every length is checked against the limit before a byte is buffered.
"""

from __future__ import annotations

import re

import h11

from polycast.dialects import json_bodies
from polycast.dialects.session import Page
from polycast.dialects.web.handshake import words_of
from polycast.errors import LimitError, ProtocolError
from polycast.model import Block, Format

CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
CHUNK_LINE_BYTES = 256
TRAILERS_BYTES = 4096
CRLF = b"\r\n"


class HttpError(ProtocolError):
    """`status` is that of the response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class UnreadBodyError(HttpError):
    """The response comes before the body, which is not read: the broker waits for the client to close."""

    def __init__(self, page: Page) -> None:
        text = page.body.decode(errors="replace").strip()
        super().__init__(page.status, f"{page.status} before the body was read: {text}")
        self.page = page


class RequestBody:
    """The body of one request, as it is received."""

    def __init__(self, request: h11.Request, limit: int) -> None:
        """Refuses a body that is too large, or whose length is in doubt, before it is read."""
        self._limit = limit
        self.chunked = bool(words_of(request.headers, b"transfer-encoding"))
        lengths = set(map(int, words_of(request.headers, b"content-length")))
        if self.chunked and (lengths or request.http_version == b"1.0"):
            raise HttpError(400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0")
        self.size = next(iter(lengths), 0)
        self._check(self.size)
        self.data = bytearray()
        """The chunks so far."""

    @property
    def is_empty(self) -> bool:
        return not self.chunked and not self.size

    def drop(self, block: Block, position: int) -> tuple[int, bool]:
        """Reads and drops a body with a length: the position after what was there, and whether that was all."""
        dropped = min(self.size, len(block) - position)
        self.size -= dropped
        return position + dropped, not self.size

    def read(self, block: Block, position: int) -> tuple[int, int, Block | None]:
        """The position, the bytes that the next part needs, and the body once it is complete."""
        if self.chunked:
            return self._read_chunks(block, position)
        end = position + self.size
        if len(block) < end:
            return position, self.size, None
        return end, 0, block[position:end]

    def _read_chunks(self, block: Block, position: int) -> tuple[int, int, Block | None]:
        while line := CHUNK.match(block, position, position + CHUNK_LINE_BYTES):
            size = int(line[1], 16)
            if not size:
                return self._read_trailers(block, position, line.end() - len(CRLF))
            self._check(len(self.data) + size)
            start, end = line.end(), line.end() + size
            if len(block) < end + len(CRLF):
                return position, end + len(CRLF) - position, None
            if block[end : end + len(CRLF)] != CRLF:
                raise HttpError(400, f"a chunk that is longer than its size of {size:,}")
            self.data += block[start:end]
            position = end + len(CRLF)
        line_end = block.find(b"\n", position, position + CHUNK_LINE_BYTES)
        if line_end >= 0 or len(block) - position >= CHUNK_LINE_BYTES:
            raise HttpError(400, "a chunk without a size in hex digits")
        return position, 0, None

    def _read_trailers(self, block: Block, position: int, start: int) -> tuple[int, int, Block | None]:
        """Trailers are dropped."""
        end = block.find(CRLF + CRLF, start, start + TRAILERS_BYTES)
        if end >= 0:
            return end + 2 * len(CRLF), 0, self.data
        if len(block) - start >= TRAILERS_BYTES:
            raise HttpError(431, f"trailers of more than {TRAILERS_BYTES:,} bytes")
        return position, 0, None

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise LimitError("the body of a request", size, self._limit, "limits.payload_bytes")


def check_payload(payload: Block, format_: Format) -> str:
    """Why a payload does not have this format; empty: it has."""
    try:
        if format_ is not Format.BYTES:
            json_bodies.check_utf8(bytes(payload))
        if format_ is Format.JSON:
            json_bodies.check_value(payload)
    except UnicodeDecodeError:
        return "the body is not UTF-8"
    except json_bodies.INVALID as error:
        return f"the body is not JSON: {error}"
    return ""
