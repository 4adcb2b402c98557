from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import chain
from math import ceil
from pathlib import Path

import typer

from polycast.cli.options import AT, PUBLISHING_DIALECT
from polycast.errors import UsageError
from polycast.model import Message

NAME = "pub"
HELP = """Publish messages, and wait until the broker has taken them.

In hermod the broker acknowledges them, and what it refuses is an error here. In ubre it tells that it has read
them. The others acknowledge nothing: what the broker refuses is in its log only.

MESSAGE is the text of one message; '-' takes each line of stdin as a message; --file takes a whole file as one."""
EXAMPLE = "seq 1000 | polycast pub numbers -"

READ_BYTES = 256 * 1024
AT_ONCE = 1000
BAR_FROM = 100_000
"""How many messages make work long enough for a progress bar."""


def run(
    topic: str = typer.Argument(help="The topic to publish on."),
    message: str | None = typer.Argument(None, help="The message, or '-' for the lines of stdin."),
    dialect: str = PUBLISHING_DIALECT,
    at: str = AT,
    count: int = typer.Option(1, min=1, help="Publish it so many times."),
    file: str | None = typer.Option(None, help="The file that is the message; '-' for all of stdin.", metavar="F"),
) -> None:
    from polycast.client import connect

    if (message is None) == (file is None):
        raise UsageError("give either MESSAGE or --file", "an empty message is ''")
    batches = _batches(message, file)
    if count > 1:
        batches = _repeated(list(chain.from_iterable(batches)), count)
    with connect(dialect, at, publishing=True) as client:
        for batch in _counted(batches, count):
            client.publish(Message(topic, payload) for payload in batch)


def _batches(message: str | None, file: str | None) -> Iterator[list[bytes]]:
    """The payloads, those that are there at once together."""
    if file == "-":
        yield [sys.stdin.buffer.read()]
    elif file is not None:
        try:
            yield [Path(file).read_bytes()]
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
    elif message == "-":
        yield from _lines_of_stdin()
    else:
        assert message is not None
        yield [message.encode(errors="surrogateescape")]


def _lines_of_stdin() -> Iterator[list[bytes]]:
    left = b""
    while data := os.read(sys.stdin.fileno(), READ_BYTES):
        *lines, left = (left + data).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines]
    if left:
        yield [left.removesuffix(b"\r")]


def _repeated(payloads: list[bytes], count: int) -> Iterator[list[bytes]]:
    """Many at a time: where each time is acknowledged, one by one would take long."""
    for done in range(0, count, AT_ONCE):
        yield payloads * min(AT_ONCE, count - done)


def _counted(batches: Iterator[list[bytes]], count: int) -> Iterator[list[bytes]]:
    if count < BAR_FROM or not sys.stderr.isatty():
        yield from batches
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(batches, "publishing", total=ceil(count / AT_ONCE), console=Console(stderr=True))
