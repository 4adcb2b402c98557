from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT, NO_RECONNECT, SUBSCRIBING_DIALECT
from polycast.cli.foreign_patterns import read_pattern
from polycast.cli.log_bounds import LAST_AT_MOST, NO_LOG, find_ends, find_last
from polycast.cli.rights import needing
from polycast.cli.sub_output import Write, show, to_writer, uses_positions
from polycast.errors import RefusedError, RemoteError, UsageError
from polycast.model import Message, Pattern, StartPosition, parse_start
from polycast.model.start_positions import LARGEST, SYNTAX

if TYPE_CHECKING:
    from polycast.client import Client, StateChange
    from polycast.dialects.client_subscriptions import StartFrom

NAME = "sub"
HELP = """Print messages as they arrive: topic, space, payload.

Patterns: foo is the topic foo, 'foo.>' all topics that begin with foo., '~foo' all that contain foo, '>' all; =foo
is always exact. The dialect ubre has exact topics only.

--from replays the log from there, then follows live messages, without gap or repeat. A sequence needs an exact
topic; an @OFFSET is for any patterns. A time without a zone is UTC. --last begins with the last messages of all
patterns together. --exit stops where the log ended at the start; without --from and --last it reads the whole log.
These need the dialect hermod and a broker with a log.

--format takes %t topic, %o offset, %s sequence, %T time, %p payload, %%, \\n and \\t. A line break follows each
message. An unknown value is a dash."""
EXAMPLE = "polycast sub 'sensors.>' '~alarm' --from -10m --json"
REPLAYING_DIALECT = "hermod"
REPLAYING_HINT = "it has stopped: its log says why"
HINT = f"it has stopped, or refused: its log says why, and --dialect {REPLAYING_DIALECT} shows a refusal"


class LogSpan(NamedTuple):
    """The part of the log to read."""

    flag: str
    """The flag that selected this part; empty: no flag."""
    start: StartFrom | None
    last: int
    to_end: bool


class EndOfLogError(Exception):
    """The connection ended before the last message of the log arrived."""


def run(
    patterns: list[str] = typer.Argument(help="Patterns to subscribe to."),
    dialect: str | None = SUBSCRIBING_DIALECT,
    at: str = AT,
    begin: str | None = typer.Option(None, "--from", help=f"Replay from here: {SYNTAX}.", metavar="WHEN"),
    last: int | None = typer.Option(None, min=1, max=LAST_AT_MOST, help="Begin with the last N messages."),
    to_end: bool = typer.Option(False, "--exit", help="Stop at the end of the log as it is at the start."),
    count: int = typer.Option(0, min=0, help="Stop after this many messages; 0: never."),
    timeout: float | None = typer.Option(None, min=0.001, max=1e6, help="Exit with 1 after so many idle seconds."),
    as_json: bool = typer.Option(
        False, "--json", help="One JSON object per line; base64 for payloads that are not text."
    ),
    raw: bool = typer.Option(False, "--raw", help="The payload only, without a line break."),
    template: str | None = typer.Option(None, "--format", help="Write each message like this.", metavar="TEXT"),
    no_reconnect: bool = NO_RECONNECT,
) -> None:
    from polycast.client import connect, to_client_session

    write = to_writer(as_json, raw, template)
    span = to_span(begin, last or 0, to_end)
    with needing(*(f"subscribe {text}" for text in patterns)):
        name = _to_dialect(dialect, span, template, at)
        wanted = to_client_session(name).check_patterns([read_pattern(text) for text in patterns], span.start)
        output, notices = Output(write, not (as_json or raw), count), StateNotices()
        client = connect(name, at, reconnect=not no_reconnect, on_state=notices.show)
        try:
            _subscribe(client, wanted, span, notices)
            stdio.notice(f"subscribed to {' '.join(patterns)} at {client.address}")
            _follow(client, notices.ends, timeout, output, REPLAYING_HINT if name == REPLAYING_DIALECT else HINT)
        except EndOfLogError:
            with suppress(EndOfLogError, TimeoutError):
                output.show(client.receive(timeout=0))
        except KeyboardInterrupt:
            if count or to_end or timeout:
                raise
        except BrokenPipeError:
            stdio.discard(sys.stdout)
        finally:
            client.disconnect()


def to_span(begin: str | None, last: int, to_end: bool) -> LogSpan:
    flags = {"--from": begin is not None, "--last": last > 0, "--exit": to_end}
    flag = next((name for name, given in flags.items() if given), "")
    if begin is not None and last:
        raise UsageError("--from and --last exclude each other", "--from WHEN --count N reads N from there")
    start = StartPosition() if to_end else None
    return LogSpan(flag, start if begin is None else parse_start(begin, time.time()), last, to_end)


def _to_dialect(dialect: str | None, span: LogSpan, template: str | None, at: str) -> str:
    if not span.flag:
        from polycast.client.recognition import find_dialect

        return dialect or (REPLAYING_DIALECT if not at or uses_positions(template) else find_dialect(at))
    if dialect not in (None, REPLAYING_DIALECT):
        hint = f"omit --dialect, or write --dialect {REPLAYING_DIALECT}"
        raise UsageError(f"{span.flag} needs the dialect {REPLAYING_DIALECT}; {dialect} cannot replay", hint)
    return REPLAYING_DIALECT


def _subscribe(client: Client, wanted: list[Pattern], span: LogSpan, notices: StateNotices) -> None:
    try:
        start = find_last(client, wanted, span.last) if span.last else span.start
        notices.ends = find_ends(client, wanted, start) if span.to_end and start else None
        client.subscribe(wanted, start)  # also without messages up to the end: refuses a position past it
    except RefusedError as error:
        if error.code == NO_LOG:
            error.hint = f"start the broker without --no-log, or omit {span.flag}"
        raise


class StateNotices:
    """Prints changes of the connection's state to stderr; of failed attempts in a row, only the first."""

    def __init__(self) -> None:
        self.ends: set[int] | None = None
        """The offsets of the messages to wait for; None: runs without an end."""
        self._connected = False
        self._lost = ""
        """The reason of a disconnect. Not printed at once, because the command may end here."""
        self._again = False

    def show(self, change: StateChange) -> None:
        if change.state == "gap":
            self._miss(change)
        elif change.state == "disconnected" and self._connected:
            self._connected, self._lost = False, change.text
        elif change.state == "connecting" and self._lost:
            stdio.notice(f"{self._lost}; connecting again")
            self._lost, self._again = "", True
        elif change.state in ("connected", "resumed"):
            if self._again:
                stdio.notice(change.text)
            self._connected = True

    def _miss(self, change: StateChange) -> None:
        stdio.notice(change.text)
        first, after = change.first or 0, change.next or 0
        if self.ends:
            self.ends -= {end for end in self.ends if first <= end < after}
            if not self.ends:
                raise EndOfLogError


class Output:
    """Writes messages, up to the limit."""

    def __init__(self, write: Write, is_text: bool, count: int) -> None:
        self._write = write
        self._is_text = is_text
        self._left = count or None

    def show(self, messages: list[Message]) -> None:
        shown = messages[: self._left]
        show(shown, self._write, self._is_text)
        if self._left is not None:
            self._left -= len(shown)

    @property
    def is_complete(self) -> bool:
        return self._left == 0


def _follow(client: Client, ends: set[int] | None, timeout: float | None, output: Output, hint: str) -> None:
    """`hint`: for the error if the broker closes the connection."""
    if ends is not None and not ends:
        return
    stop = max(ends) if ends else LARGEST
    for arrived in _arriving(client, timeout):
        output.show([message for message in arrived if (message.offset or 0) <= stop])
        if ends is not None:
            ends -= {message.offset for message in arrived}
        if output.is_complete or (ends is not None and not ends):
            return
    raise RemoteError(f"{client.address}: the broker closed the connection", hint)


def _arriving(client: Client, timeout: float | None) -> Iterator[list[Message]]:
    """Raises RemoteError if no message arrives in time."""
    while True:
        try:
            arrived = client.receive(timeout)
        except TimeoutError as error:
            raise RemoteError(f"{client.address}: nothing arrived for {timeout:g} s (--timeout)") from error
        if not arrived:
            return
        yield arrived
