"""The frames of `simplest`, written and read by hand."""

from __future__ import annotations


def pub(name: str, data: bytes = b"") -> bytes:
    return b"pub %b %d %b\n" % (name.encode(), len(data), data)


def read_pubs(stream: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    """The (name, data) of all whole frames, and what is left; anything but a `pub` in plain form is an error."""
    found: list[tuple[str, bytes]] = []
    position = 0
    while (after := _end_of_pub(stream, position)) is not None:
        found.append(after[:2])
        position = after[2]
    return found, stream[position:]


def _end_of_pub(stream: bytes, position: int) -> tuple[str, bytes, int] | None:
    words = stream[position : position + 2048].split(b" ", 3)
    assert b"pub".startswith(words[0]) if len(words) == 1 else words[0] == b"pub", f"no frame: {words[0]!r}"
    if len(words) < 4:
        return None
    start = position + len(b" ".join(words[:3])) + 1
    end = start + int(words[2])
    if end >= len(stream):
        return None
    assert stream[end] == ord("\n"), f"framing lost after {words[1]!r}"
    return words[1].decode(), stream[start:end], end + 1
