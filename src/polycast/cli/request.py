from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT
from polycast.cli.rights import FORBIDDEN, needing, right_to_request
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Body, Format

if TYPE_CHECKING:
    from polycast.client import Response

NAME = "request"
HELP = """Send a request and print the body of the response as JSON. The dialect is ubre.

BODY is JSON if it parses as JSON, otherwise text; a BODY that starts with {, [ or " must be JSON. '-' reads stdin.

The broker serves the routes that begin with polycast/, clients serve the others. A failure goes to stderr, with
exit code 1."""
EXAMPLE = """polycast request polycast/publish '{"topic": "chat", "body": "hello"}'"""

CONNECT_SECONDS = 10.0
CLUSTER = "polycast/cluster"


def run(
    route: str = typer.Argument(help="The route."),
    body: str | None = typer.Argument(None, help="The body of the request, or '-' for stdin."),
    at: str = AT,
    timeout: float = typer.Option(60.0, min=0.001, help="Seconds to wait for the response."),
) -> None:
    sent = Body() if body is None else _to_body(_read(body))
    response = send_request(route, sent, at, timeout)
    if response.format is not Format.NONE:
        typer.echo(_to_json(response))


def send_request(route: str, body: Body, at: str, timeout: float = 60.0) -> Body:
    """The body of a successful response; raises RemoteError otherwise."""
    from polycast.client import connect

    with needing(right_to_request(route)):
        with connect("ubre", at, timeout=min(timeout, CONNECT_SECONDS), reconnect=False) as client:
            response = client.request(route, body, timeout)
        if not response.success:
            raise _to_failure(route, response)
    return response.body


def _to_failure(route: str, response: Response) -> RemoteError:
    text = response.value if response.body.format is Format.TEXT else _to_json(response.body)
    if text == "Forbidden":
        return RefusedError(f"{route}: {text}", FORBIDDEN)
    return RemoteError(f"{route}: {text}", _to_hint(route) if text == "NotFound" else "")


def _to_hint(route: str) -> str:
    """Only a node has the routes of the cluster."""
    if route == CLUSTER or route.startswith(f"{CLUSTER}/"):
        return "this broker is not a node of a cluster; 'polycast serve --cluster' starts one"
    return "no client serves that route"


def _read(body: str) -> str:
    data = b"".join(stdio.read_stdin()) if body == "-" else body.encode(errors="surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError("BODY is not UTF-8", "a client of polycast.client sends bytes") from error


def _to_body(text: str) -> Body:
    try:
        return parse_json(text)
    except ValueError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            hint = 'quote it for the shell, as in \'{"a": 1}\'; a text must not begin with {, [ or "'
            raise UsageError(f"BODY is not valid JSON: {error}", hint) from error
        return Body(text.encode(), Format.TEXT)


def parse_json(text: str) -> Body:
    """A string is JSON text. Raises ValueError if the text is not JSON."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return Body(value.encode(), Format.TEXT) if isinstance(value, str) else Body(text.encode(), Format.JSON)


def _no_constant(text: str) -> None:
    """Python accepts NaN and Infinity, JSON does not."""
    raise ValueError(text)


def _to_json(body: Body) -> str:
    from polycast.dialects.json_bodies import to_json

    return to_json(*body).decode()
