"""The scans of UBRE's publications: `framed` reads those in WebSocket messages, `lines` those on a stream.

    {"publish":"topic","body":"text"}
    {"publish":"topic","body":any other JSON}
    {"publish":"topic"}

with these keys in this order, no escape in the topic, and values at most 64 levels deep. A scan stops at the first
message that differs; the session reads that one.

Messages in canonical form stay in the block and are sent as they arrived. The first message that is not
canonical, by white space between tokens or escapes in its text, makes the scan continue in a copy: it has all
frames in canonical form, followed by the unescaped texts. So a client that writes JSON with spaces, or texts with
line ends, still produces one burst. The C version (`_scan.pyx`) takes 60 ns for a short message; Python takes
4,000. A test checks that both return the same.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec
from msgspec import Raw

from polycast.dialects.json_bodies import (
    BACKSLASH,
    BLANKS,
    INVALID,
    JSON,
    NONE,
    QUOTE,
    TEXT,
    check_utf8,
    compact,
    read_string,
)
from polycast.dialects.web import websocket
from polycast.model import Block, Format

Publications = tuple[Block, list[bytes], list[Format], list[int], Sequence[int], Sequence[int], Sequence[int], int]
"""block, topics, formats, run_ends, starts, ends, bounds, position: the columns of a burst, and where the scan
stopped. For `framed`, the position is the index of the message."""

DEPTH = 64
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
NOWHERE = -1

PLAIN = rb"[^\"\\\x00-\x1f]*"
UNIT = rb"\\u(?:[0-9abcefABCEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2}"
PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
STRING = re.compile(rb'"%b(?:(?:\\[\"\\/bfnrt]|%b|%b)%b)*"' % (PLAIN, UNIT, PAIR, PLAIN))
PUBLICATION = re.compile(
    rb'~\{~"publish"~:~"(%b)"~(?:,~"body"~:~(.*))?\}~'.replace(b"~", rb"[ \t\r\n]*") % PLAIN, re.DOTALL
)

_check_value = msgspec.json.Decoder(Raw).decode


class JsonPublication(NamedTuple):
    topic: bytes
    format: Format
    payload: bytes
    text: bytes
    """The message in canonical form."""
    payload_start: int
    """Where in the text the payload starts, or NOWHERE if it was unescaped."""


def framed_in_python(
    block: Block,
    starts: Sequence[int],
    ends: Sequence[int],
    opcodes: bytes,
    bounds: Sequence[int],
    position: int,
    topic_limit: int,
    payload_limit: int,
) -> Publications:
    found: list[JsonPublication] = []
    first = position
    while position < len(opcodes) and opcodes[position] == websocket.TEXT:
        text = bytes(block[starts[position] : ends[position]])
        if (each := _read_publication(text, topic_limit, payload_limit)) is None:
            break
        found.append(each)
        position += 1
    heads = [websocket.header(websocket.TEXT, len(each.text)) for each in found]
    return _to_columns(block, bounds[first], found, heads, b"", position)


def lines_in_python(
    block: Block, position: int, line_limit: int, topic_limit: int, payload_limit: int
) -> Publications:
    found: list[JsonPublication] = []
    first = position
    while (end := block.find(b"\n", position, position + line_limit + 1)) >= 0:
        each = _read_publication(bytes(block[position:end]), topic_limit, payload_limit)
        if each is None:
            break
        found.append(each)
        position = end + 1
    return _to_columns(block, first, found, [b""] * len(found), b"\n", position)


# -- one publication --------------------------------------------------------------------------------------


def _read_publication(text: bytes, topic_limit: int, payload_limit: int) -> JsonPublication | None:
    match = PUBLICATION.fullmatch(text)
    if match is None:
        return None
    topic, value = match.groups()
    try:
        check_utf8(text)
        found = _to_publication(topic, None if value is None else value.rstrip(BLANKS))
    except INVALID:
        return None
    return found if len(topic) <= topic_limit and len(found.payload) <= payload_limit else None


def _to_publication(topic: bytes, value: bytes | None) -> JsonPublication:
    if value is None:
        text = b'{"publish":"%b"}' % topic
        return JsonPublication(topic, NONE, b"", text, len(text) - 1)
    if value.startswith(b'"'):
        if STRING.fullmatch(value) is None:
            raise msgspec.DecodeError
        format_, payload = TEXT, read_string(value)
    else:
        format_, value = JSON, _read_value(value)
        payload = value
    text = b'{"publish":"%b","body":%b}' % (topic, value)
    if format_ is TEXT and BACKSLASH in value:
        return JsonPublication(topic, TEXT, payload, text, NOWHERE)
    return JsonPublication(topic, format_, payload, text, len(text) - len(payload) - (2 if format_ is TEXT else 1))


def _read_value(value: bytes) -> bytes:
    """Without white space between tokens."""
    rest = STRING.sub(b"", value)
    if QUOTE in rest or _depth(rest) > DEPTH:
        raise msgspec.DecodeError
    _check_value(value)
    return compact(value) if len(rest.translate(None, BLANKS)) < len(rest) else value


def _depth(rest: bytes) -> int:
    """The depth of a value without its strings; or the number of its brackets, if there are few."""
    brackets = rest.count(b"[") + rest.count(b"{")
    if brackets <= DEPTH:
        return brackets
    return max(accumulate(STEPS.get(byte, 0) for byte in rest))


# -- columns ----------------------------------------------------------------------------------------------


def _to_columns(
    block: Block, begin: int, found: list[JsonPublication], heads: list[bytes], tail: bytes, position: int
) -> Publications:
    """`begin` is the start of the first frame, `heads` and `tail` are the bytes around the texts."""
    if not found:
        return block, [], [], [], (), (), (), position
    sizes = [len(head) + len(each.text) + len(tail) for each, head in zip(found, heads, strict=True)]
    bounds = array("q", accumulate(sizes, initial=0))
    frames = b"".join([part for each, head in zip(found, heads, strict=True) for part in (head, each.text, tail)])
    starts, payloads = array("q"), bytearray()
    for each, head, bound in zip(found, heads, bounds, strict=False):
        if each.payload_start == NOWHERE:
            starts.append(len(frames) + len(payloads))
            payloads += each.payload
        else:
            starts.append(bound + len(head) + each.payload_start)
    if not payloads and block.startswith(frames, begin):
        bounds, starts = (array("q", [begin + at for at in column]) for column in (bounds, starts))
    else:
        block = frames + payloads
    ends = array("q", [start + len(each.payload) for start, each in zip(starts, found, strict=True)])
    runs = [(key, len(list(group))) for key, group in groupby(found, itemgetter(0, 1))]
    run_ends = list(accumulate(size for _, size in runs))
    topics, formats = [topic for (topic, _), _ in runs], [format_ for (_, format_), _ in runs]
    return block, topics, formats, run_ends, starts, ends, bounds, position


try:
    from polycast.dialects.ubre import _scan
except ImportError:
    COMPILED = False
    framed, lines = framed_in_python, lines_in_python
else:
    COMPILED = True
    framed, lines = _scan.framed, _scan.lines
