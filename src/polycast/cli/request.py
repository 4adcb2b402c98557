from __future__ import annotations

import json

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT
from polycast.errors import RemoteError, UsageError
from polycast.model import Body, Format

NAME = "request"
HELP = """Ask for something and print the answer's body as JSON. The dialect is ubre.

BODY is JSON where it reads as JSON, and text otherwise; what begins like an object, a list or a string must be
JSON. '-' takes it from stdin.

The broker has routes of its own, whose names begin with polycast/. A request for any other goes on to a client
that has offered to answer it. A failure goes to stderr, and the exit code is 1 then."""
EXAMPLE = """polycast request polycast/publish '{"topic": "chat", "body": "hello"}'"""

CONNECT_SECONDS = 10.0


def run(
    route: str = typer.Argument(help="The route to ask."),
    body: str | None = typer.Argument(None, help="The body of the request, or '-' for stdin."),
    at: str = AT,
    timeout: float = typer.Option(60.0, min=0.001, help="How many seconds to wait for the answer."),
) -> None:
    sent = Body() if body is None else _to_body(_read(body))
    answer = send_request(route, sent, at, timeout)
    if answer.format is not Format.NONE:
        typer.echo(_to_json(answer))


def send_request(route: str, body: Body, at: str, timeout: float = 60.0) -> Body:
    """The body of the answer, if it is a success."""
    from polycast.client import connect

    with connect("ubre", at, timeout=min(timeout, CONNECT_SECONDS)) as client:
        answer = client.request(route, body, timeout)
    if not answer.success:
        words = answer.value if answer.body.format is Format.TEXT else _to_json(answer.body)
        raise RemoteError(f"{route}: {words}", "nobody answers that route" if words == "NotFound" else "")
    return answer.body


def _read(body: str) -> str:
    data = b"".join(stdio.read_stdin()) if body == "-" else body.encode(errors="surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError("BODY is not UTF-8") from error


def _to_body(text: str) -> Body:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            raise UsageError(f"BODY begins like JSON, but is none: {error}") from error
        return Body(text.encode(), Format.TEXT)
    return Body(value.encode(), Format.TEXT) if isinstance(value, str) else Body(text.encode(), Format.JSON)


def _no_constant(text: str) -> None:
    """Python's reader takes NaN and Infinity for numbers, JSON does not."""
    raise ValueError(text)


def _to_json(body: Body) -> str:
    from polycast.dialects.json_bodies import to_json

    return to_json(*body).decode()
