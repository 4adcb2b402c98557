"""How `polycast sub` writes a message: as a line, as JSON, as its payload alone, or by a template.

A template has %t topic, %o offset, %s sequence, %T time, %p payload, %% and the escapes \\n, \\t and \\\\. A line
break follows each message. An unknown value is a dash.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from polycast.cli.message_output import to_json_payload
from polycast.errors import UsageError
from polycast.model import Message
from polycast.text import printable

Write = Callable[[Message], bytes]

PART = re.compile(r"%(.?)|\\(.?)|[^%\\]+", re.DOTALL)
FIELDS: dict[str, Write] = {
    "t": lambda message: message.topic.encode(),
    "o": lambda message: _to_text(message.offset),
    "s": lambda message: _to_text(message.sequence),
    "T": lambda message: _to_text(to_time(message)),
    "p": lambda message: message.payload,
}
ESCAPES = {"%%": "%", "\\n": "\n", "\\t": "\t", "\\\\": "\\"}
POSITIONS = ("%o", "%s", "%T")
"""Directives that need a dialect with positions."""


def to_writer(as_json: bool, raw: bool, template: str | None) -> Write:
    if as_json + raw + (template is not None) > 1:
        raise UsageError("--json, --raw and --format exclude each other", "give one of them")
    if template is not None:
        return parse_template(template)
    return _to_json if as_json else (lambda message: message.payload) if raw else _to_line


def parse_template(template: str) -> Write:
    parts = [_to_part(found) for found in PART.finditer(template)]
    return lambda message: b"".join([part(message) for part in parts]) + b"\n"


def _to_part(found: re.Match[str]) -> Write:
    text = found[0]
    if found[1] is not None and found[1] in FIELDS:
        return FIELDS[found[1]]
    if text in ESCAPES or (found[1] is None and found[2] is None):
        constant = os.fsencode(ESCAPES.get(text, text))
        return lambda message: constant
    hint = "known are %t topic, %o offset, %s sequence, %T time, %p payload, %%, \\n, \\t and \\\\"
    raise UsageError(f"--format: unknown directive {text}", hint)


def uses_positions(template: str | None) -> bool:
    return any(found[0] in POSITIONS for found in PART.finditer(template or ""))


def show(messages: Iterable[Message], write: Write, is_text: bool) -> None:
    """`is_text`: on a terminal, unprintable characters are escaped."""
    out = b"".join(map(write, messages))
    if is_text and sys.stdout.isatty():
        out = printable(out.decode(errors="backslashreplace"), keep="\n\t").encode()
    view = memoryview(out)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def to_time(message: Message) -> str | None:
    """The time as text, in UTC."""
    if message.time is None:
        return None
    return datetime.fromtimestamp(message.time, UTC).isoformat(timespec="microseconds")


def _to_text(value: object) -> bytes:
    return b"-" if value is None else str(value).encode()


def _to_line(message: Message) -> bytes:
    return b"%b %b\n" % (message.topic.encode(), message.payload)


def _to_json(message: Message) -> bytes:
    payload = to_json_payload(message.payload)
    row: dict[str, Any] = {"topic": message.topic, "format": message.format, "payload": payload}
    positions = {"sequence": message.sequence, "offset": message.offset, "time": to_time(message)}
    row |= {name: value for name, value in positions.items() if value is not None}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"
