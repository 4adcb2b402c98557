from __future__ import annotations

import base64
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT, SUBSCRIBING_DIALECT
from polycast.cli.start_flag import FORMS, parse_start
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Message, Pattern, parse_pattern
from polycast.text import printable

if TYPE_CHECKING:
    from polycast.client import Client
    from polycast.dialects.client_session import StartFrom

NAME = "sub"
HELP = """Print messages as they arrive: topic, space, payload.

Patterns: foo is the topic foo, 'foo.>' all topics that begin with foo., '~foo' all that contain foo, '>' all; =foo
is always exact. The dialect ubre has exact topics only.

--from replays the log from there, then follows live messages, without gap or repeat. It needs the dialect hermod
and a broker with a log. A sequence needs an exact topic. A time without a zone is UTC."""
EXAMPLE = "polycast sub 'sensors.>' '~alarm' --from -10m --json"
REPLAYING_DIALECT = "hermod"
LIVE_DIALECT = "simplest"
NO_LOG_CODE = 501


def run(
    patterns: list[str] = typer.Argument(help="Patterns to subscribe to."),
    dialect: str | None = SUBSCRIBING_DIALECT,
    at: str = AT,
    begin: str | None = typer.Option(None, "--from", help=f"Replay from here: {FORMS}.", metavar="WHEN"),
    count: int = typer.Option(0, min=0, help="Stop after this many messages; 0: never."),
    as_json: bool = typer.Option(
        False, "--json", help="One JSON object per line; base64 for payloads that are not text."
    ),
) -> None:
    from polycast.client import Client, to_client_session

    start = None if begin is None else parse_start(begin, time.time())
    side = to_client_session(_to_dialect(dialect, begin), at)
    wanted = side.check_patterns([parse_pattern(text) for text in patterns], start)
    client = Client(side)
    left = count
    try:
        _subscribe(client, wanted, start)
        stdio.notice(f"subscribed to {' '.join(patterns)} at {client.address}")
        for arrived in client.messages():
            shown = arrived[:left] if count else arrived
            _show(shown, as_json)
            left -= len(shown)
            if count and not left:
                return
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        stdio.discard(sys.stdout)
        return
    raise RemoteError(f"{client.address}: the broker closed the connection")


def _to_dialect(dialect: str | None, begin: str | None) -> str:
    if begin is None:
        return dialect or LIVE_DIALECT
    if dialect not in (None, REPLAYING_DIALECT):
        hint = f"omit --dialect, or write --dialect {REPLAYING_DIALECT}"
        raise UsageError(f"--from needs the dialect {REPLAYING_DIALECT}; {dialect} cannot replay", hint)
    return REPLAYING_DIALECT


def _subscribe(client: Client, wanted: list[Pattern], start: StartFrom | None) -> None:
    try:
        client.subscribe(wanted, start)
    except RefusedError as error:
        if error.code == NO_LOG_CODE:
            error.hint = "start the broker without --no-log, or omit --from"
        raise


def _show(messages: list[Message], as_json: bool) -> None:
    """Raw bytes; on a terminal, printable text."""
    write = _to_json if as_json else _to_line
    out = b"".join(map(write, messages))
    if sys.stdout.isatty() and not as_json:
        out = printable(out.decode(errors="backslashreplace"), keep="\n\t").encode()
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
