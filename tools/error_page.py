"""The reference page of errors: codes and texts per dialect, extracted from the source."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

from error_texts import GAP, ErrorText, find_error_texts
from polycast import errors
from polycast.cli import INTERRUPTED
from polycast.dialects import failure_codes
from polycast.dialects.hermod.headers import CODES
from polycast.dialects.web.websocket import TOO_BIG

HEAD = f"""# Errors

Error codes and texts; `{GAP}` stands for a value. The page of each dialect says which errors close the connection;
[the metrics](metrics.md) count them.

## Exit codes of the commands

| code | meaning |
|---|---|"""

EXIT_CODES = {
    0: "success",
    errors.PolycastError.exit_code: "failure, with the reason on stderr; `find`: no message found",
    errors.UsageError.exit_code: "a flag, a setting or a pattern is invalid; nothing was started",
    errors.DivergedError.exit_code: "`serve`: the table of this node differs from the majority of the nodes",
    INTERRUPTED: "interrupted by ctrl-C; `reply`, and `sub` without an end: 0",
}

HERMOD_HEAD = """
## [hermod](../dialects/hermod.md)

Sent as `{"status": "ERROR", "code": C, "message": M}`.

| code | message |
|---|---|"""

REQUESTS_HEAD = """
## Requests in [UBRE](../dialects/ubre.md), and `request` in hermod

A failed request has a word, and often a sentence after it. hermod adds a code; words that responders choose
themselves have the code 500 there.

| word | code in hermod | sentences |
|---|---|---|"""

HTTP_HEAD = """
## [http](../guides/http.md)

| status | text |
|---|---|"""

WEBSOCKET_HEAD = """
## WebSocket

| close code | reason |
|---|---|"""

REFUSED_HEAD = """
## Refused input

The broker skips the input, counts it by reason in `polycast_inputs_refused_total` and keeps the connection open.
`simplest`, `fanout` and `nanomsg` have no error replies; http counts the name of the status.

| dialect | reason |
|---|---|"""

CLOSED_HEAD = """
## Reasons to close a connection

Counted by reason in `polycast_connections_closed_total`; a line on stderr names the connection.

| reason | meaning |
|---|---|"""

LIMIT = str(errors.LimitError(GAP, 0, 0, GAP)).replace("0", GAP)


def error_page() -> Iterator[str]:
    yield HEAD
    yield from (f"| {code} | {when} |" for code, when in EXIT_CODES.items())
    yield HERMOD_HEAD
    makers = ("HermodError", "HugeSizeError", "StageError", "to_error")
    hermod = find_error_texts(makers, "dialects/hermod", "server")
    starts = find_error_texts(("ProtocolError",), "dialects/start_positions")
    hermod += [found._replace(code=CODES[errors.ProtocolError]) for found in starts]
    yield from _by_code([*hermod, ErrorText(CODES[errors.LimitError], LIMIT, "")])
    yield REQUESTS_HEAD
    yield from _failed_requests()
    yield HTTP_HEAD
    yield from _by_code(find_error_texts(("HttpError", "Page"), "dialects/web", "server"))
    yield WEBSOCKET_HEAD
    yield from _by_code([*find_error_texts(("WebSocketError",), "dialects"), ErrorText(TOO_BIG, LIMIT, "")])
    yield REFUSED_HEAD
    yield from _refused()
    yield CLOSED_HEAD
    yield from _closed()
    yield f"\n## In Python\n\n```text\n{inspect.getdoc(errors)}\n```\n"


def _by_code(texts: Iterable[ErrorText]) -> Iterator[str]:
    for code, text in sorted({(found.code, found.text) for found in texts if found.code}):
        yield f"| {code} | {_cell(text)} |"


def _failed_requests() -> Iterator[str]:
    sentences: dict[str, set[str]] = {word: set() for word in failure_codes.CODES}
    for found in find_error_texts(("RouteError", "text_body"), "broker", "server"):
        word, _, sentence = found.text.partition(": ")
        sentences.setdefault(word, set()).update([sentence] if sentence else [])
    for word, texts in sorted(sentences.items()):
        yield f"| `{word}` | {failure_codes.code_of(word)} | {'<br>'.join(map(_cell, sorted(texts)))} |"


def _refused() -> Iterator[str]:
    refused = {
        (_dialect(found.module), found.text)
        for found in find_error_texts(("Refused", "refuse"), "dialects", "server")
    }
    for dialect, reason in sorted(refused):
        yield f"| {dialect} | {_cell(reason)} |"


def _dialect(module: str) -> str:
    return module.split(".")[1] if module.startswith("dialects.") else "any"


def _closed() -> Iterator[str]:
    meanings = dict(re.findall(r"(\w+Error) +(.+)", inspect.getdoc(errors) or ""))
    for error in errors.PeerError.__subclasses__():
        if error.__module__ == errors.__name__:
            yield f"| {error.kind} | {meanings[error.__name__]} |"
    for found in sorted(find_error_texts(("disconnect",), "server")):
        if found.more:
            yield f"| {found.text} | {_cell(found.more)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
