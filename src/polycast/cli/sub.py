from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

import typer

from polycast.cli import streams
from polycast.cli.options import AT, SUBSCRIBING_DIALECT
from polycast.errors import RemoteError
from polycast.model import Message, parse_pattern

NAME = "sub"
HELP = """Print messages as they arrive: topic, space, payload.

Patterns: foo exact, 'foo.>' what begins with foo., '~foo' what contains foo, '>' everything, =foo exact. The
dialects hermod and ubre take exact topics only."""
EXAMPLE = "polycast sub 'sensors.>' '~alarm' --json"


def run(
    patterns: list[str] = typer.Argument(help="What to subscribe to."),
    dialect: str = SUBSCRIBING_DIALECT,
    at: str = AT,
    count: int = typer.Option(0, min=0, help="Stop after so many messages; 0: never."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per line; base64 where need be."),
) -> None:
    from polycast.client import Client, to_side

    side = to_side(dialect, at)
    wanted = side.check_patterns([parse_pattern(text) for text in patterns])
    client = Client(side)
    left = count
    try:
        client.subscribe(wanted)
        streams.say(f"subscribed to {' '.join(patterns)} at {client.address}")
        for arrived in client.messages():
            shown = arrived[:left] if count else arrived
            _show(shown, as_json)
            left -= len(shown)
            if count and not left:
                return
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        streams.let_go(sys.stdout)
        return
    raise RemoteError(f"{client.address}: the broker closed the connection")


def _show(messages: list[Message], as_json: bool) -> None:
    """Bytes as they are, except where they would write on somebody's terminal."""
    write = _to_json if as_json else _to_line
    out = b"".join(map(write, messages))
    if sys.stdout.isatty() and not as_json:
        out = b"".join(_printable(line) for line in out.splitlines(keepends=True))
    view = memoryview(out)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def _to_line(message: Message) -> bytes:
    return b"%b %b\n" % (message.topic.encode(), message.payload)


def _to_json(message: Message) -> bytes:
    try:
        payload: Any = message.payload.decode()
    except UnicodeDecodeError:
        payload = {"$base64": base64.b64encode(message.payload).decode()}
    row: dict[str, Any] = {"topic": message.topic, "format": message.format, "payload": payload}
    if message.sequence is not None:
        row["sequence"] = message.sequence
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _printable(line: bytes) -> bytes:
    text = line.decode(errors="replace")
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text).encode()
