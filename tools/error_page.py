"""The page of errors: for each dialect the codes and words that the code has for what is wrong."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

from polycast import errors
from polycast.cli import INTERRUPTED
from polycast.dialects.hermod.encoders import RESPONSE_CODES
from polycast.dialects.hermod.headers import CODES
from polycast.dialects.web.websocket import TOO_BIG
from spoken import GAP, Spoken, find_spoken

HEAD = f"""# Errors

What is said when something is wrong; `{GAP}` stands for what depends on the case. What it means for the connection
is on the page of each dialect, and how often it happened in [the metrics](metrics.md).

## Exit codes of the commands

| code | when |
|---|---|"""

EXIT_CODES = {
    0: "it is done",
    errors.PolycastError.exit_code: "it failed, and stderr says why; or `find` found nothing",
    errors.UsageError.exit_code: "a flag, a setting or a pattern is wrong; nothing was begun",
    INTERRUPTED: "ctrl-C, where there was nothing to bring to an end",
}

HERMOD_HEAD = """
## [hermod](../dialects/hermod.md)

As `{"status": "ERROR", "code": C, "message": M}`.

| code | message |
|---|---|"""

REQUESTS_HEAD = """
## Requests in [UBRE](../dialects/ubre.md), and `ask` in hermod

A request fails with a word, and where it helps, with a sentence behind it. In hermod there is a code as well; any
other word, which whoever serves the route may have for a failure, is a 500 there.

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
## What is passed over

It is counted under its reason in `polycast_inputs_refused_total`, and the connection stays. `simplest`, `fanout`
and `nanomsg` have no words to tell it; http counts the name of the status.

| dialect | reason |
|---|---|"""

CLOSED_HEAD = """
## What a connection is closed for

It is counted under its reason in `polycast_connections_closed_total`, and a line on stderr says which connection
it was.

| reason | when |
|---|---|"""

LIMIT = str(errors.LimitError(GAP, 0, 0, GAP)).replace("0", GAP)


def error_page() -> Iterator[str]:
    yield HEAD
    yield from (f"| {code} | {when} |" for code, when in EXIT_CODES.items())
    yield HERMOD_HEAD
    makers = ("HermodError", "HugeSizeError", "StageError", "to_error")
    told = find_spoken(makers, "dialects/hermod", "server")
    starts = find_spoken(("ProtocolError",), "dialects/start_positions")
    told += [spoken._replace(code=CODES[errors.ProtocolError]) for spoken in starts]
    yield from _by_code([*told, Spoken(CODES[errors.LimitError], LIMIT, "")])
    yield REQUESTS_HEAD
    yield from _failed_requests()
    yield HTTP_HEAD
    yield from _by_code(find_spoken(("HttpError", "Page"), "dialects/web", "server"))
    yield WEBSOCKET_HEAD
    yield from _by_code([*find_spoken(("WebSocketError",), "dialects"), Spoken(TOO_BIG, LIMIT, "")])
    yield REFUSED_HEAD
    yield from _refused()
    yield CLOSED_HEAD
    yield from _closed()
    yield f"\n## In Python\n\n```text\n{inspect.getdoc(errors)}\n```\n"


def _by_code(told: Iterable[Spoken]) -> Iterator[str]:
    for code, words in sorted({(spoken.code, spoken.words) for spoken in told if spoken.code}):
        yield f"| {code} | {_cell(words)} |"


def _failed_requests() -> Iterator[str]:
    sentences: dict[str, set[str]] = {word: set() for word in RESPONSE_CODES}
    for spoken in find_spoken(("RouteError", "text_body"), "broker", "server"):
        word, _, sentence = spoken.words.partition(": ")
        sentences.setdefault(word, set()).update([sentence] if sentence else [])
    for word, told in sorted(sentences.items()):
        yield f"| `{word}` | {RESPONSE_CODES.get(word, 500)} | {'<br>'.join(map(_cell, sorted(told)))} |"


def _refused() -> Iterator[str]:
    told = {
        (_dialect(spoken.room), spoken.words)
        for spoken in find_spoken(("Refused", "refuse"), "dialects", "server")
    }
    for dialect, words in sorted(told):
        yield f"| {dialect} | {_cell(words)} |"


def _dialect(room: str) -> str:
    return room.split(".")[1] if room.startswith("dialects.") else "any"


def _closed() -> Iterator[str]:
    meanings = dict(re.findall(r"(\w+Error) +(.+)", inspect.getdoc(errors) or ""))
    for error in errors.PeerError.__subclasses__():
        if error.__module__ == errors.__name__:
            yield f"| {error.kind} | {meanings[error.__name__]} |"
    for spoken in sorted(find_spoken(("disconnect",), "server")):
        if spoken.more:
            yield f"| {spoken.words} | {_cell(spoken.more)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
