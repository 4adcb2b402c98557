from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path

import typer

from polycast.cli.options import AT, DIALECT
from polycast.errors import UsageError
from polycast.model import Message

NAME = "pub"
HELP = """Publish messages, and wait until the broker has read them.

MESSAGE is the text of one message; '-' takes each line of stdin as a message; --file takes a whole file as one."""
EXAMPLE = "seq 1000 | polycast pub numbers -"

BAR_FROM = 100_000
"""How many messages make work long enough for a progress bar."""


def run(
    topic: str = typer.Argument(help="The topic to publish on."),
    message: str | None = typer.Argument(None, help="The message, or '-' for the lines of stdin."),
    dialect: str = DIALECT,
    at: str = AT,
    count: int = typer.Option(1, min=1, help="Publish it so many times."),
    file: str | None = typer.Option(None, help="The file that is the message; '-' for all of stdin.", metavar="F"),
) -> None:
    from polycast.client import connect

    if (message is None) == (file is None):
        raise UsageError("give either MESSAGE or --file", "an empty message is ''")
    payloads: Iterable[bytes] = _payloads(message, file)
    if count > 1:
        payloads = chain.from_iterable(repeat(list(payloads), count))
    with connect(dialect, at, publishing=True) as client:
        client.publish(_counted((Message(topic, payload) for payload in payloads), count))


def _payloads(message: str | None, file: str | None) -> Iterator[bytes]:
    if file == "-":
        yield sys.stdin.buffer.read()
    elif file is not None:
        try:
            yield Path(file).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
    elif message == "-":
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n").removesuffix(b"\r")
    else:
        assert message is not None
        yield message.encode(errors="surrogateescape")


def _counted(messages: Iterator[Message], count: int) -> Iterator[Message]:
    if count < BAR_FROM or not sys.stderr.isatty():
        yield from messages
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(messages, "publishing", total=count, console=Console(stderr=True))
