from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from math import ceil
from pathlib import Path

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT, PUBLISHING_DIALECT
from polycast.errors import UsageError
from polycast.model import Message

NAME = "pub"
HELP = """Publish messages, and wait until the broker has taken them.

In hermod the broker acknowledges them, and what it refuses is an error here. In ubre it tells that it has read
them. The others acknowledge nothing: what the broker refuses is in its log only, except that it may hang up. That
is an error if it is noticed; a broker that takes longer than a moment to do so is not waited for.

MESSAGE is the text of one message; '-' takes each line of stdin as a message; --file takes a whole file as one.

With --batch-id, all that would be published is one batch: the broker takes all of it or nothing, and only once,
however often it comes under that id. How many messages that are is printed. It needs a broker that keeps a log."""
EXAMPLE = "seq 1000 | polycast pub numbers -"

BATCHING_DIALECT = "hermod"
BATCH_ID_BYTES = 256
LINE_BYTES = 2**30
BLOCK_ROWS = 1000
BAR_FROM = 100_000
"""How many messages make work long enough for a progress bar."""


def run(
    topic: str = typer.Argument(help="The topic to publish on."),
    message: str | None = typer.Argument(None, help="The message, or '-' for the lines of stdin."),
    dialect: str = PUBLISHING_DIALECT,
    at: str = AT,
    count: int = typer.Option(1, min=1, help="Publish it so many times."),
    file: str | None = typer.Option(None, help="The file that is the message; '-' for all of stdin.", metavar="F"),
    batch_id: str | None = typer.Option(None, help="Publish all of it once, under this id.", metavar="ID"),
) -> None:
    from polycast.client import Client, to_client_session

    _check(dialect, message, file, batch_id)
    side = to_client_session(dialect, at, publishing=True)
    side.encode(Message(topic, b""))
    batches = to_lines(stdio.read_stdin()) if message == "-" else iter([[_whole(message, file)]])
    if message != "-" or count > 1:
        payloads = list(chain.from_iterable(batches))
        for payload in payloads:
            side.encode(Message(topic, payload))
        batches = _repeated(payloads, count)
    if batch_id is not None:
        batches = iter([list(chain.from_iterable(batches))])
    with Client(side) as client:
        for batch in _counted(batches, count):
            messages = (Message(topic, payload) for payload in batch)
            if batch_id is None:
                client.publish(messages)
            else:
                typer.echo(client.publish_once(messages, batch_id))


def _check(dialect: str, message: str | None, file: str | None, batch_id: str | None) -> None:
    if (message is None) == (file is None):
        raise UsageError("give either MESSAGE or --file", "an empty message is ''")
    if batch_id is not None and dialect != BATCHING_DIALECT:
        hint = f"leave --dialect away, or write --dialect {BATCHING_DIALECT}"
        raise UsageError(f"--batch-id needs the dialect {BATCHING_DIALECT}", hint)
    if batch_id is not None and not 0 < len(batch_id.encode(errors="surrogateescape")) <= BATCH_ID_BYTES:
        raise UsageError(f"--batch-id takes 1 to {BATCH_ID_BYTES} bytes")


def _whole(message: str | None, file: str | None) -> bytes:
    """What is published as one message."""
    if message is not None:
        return message.encode(errors="surrogateescape")
    if file == "-":
        return b"".join(stdio.read_stdin())
    assert file is not None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error


def to_lines(blocks: Iterable[bytes], limit: int = LINE_BYTES) -> Iterator[list[bytes]]:
    """Lines, those that are there at once together. A long one is put together once, when its end comes."""
    pieces: list[bytes] = []
    size = 0
    for block in blocks:
        first, *others = block.split(b"\n")
        pieces.append(first)
        size += len(first)
        if size > limit:
            hint = "--file takes a whole file as one message"
            raise UsageError(f"a line of stdin is longer than {limit:,} bytes", hint)
        if others:
            lines = [b"".join(pieces), *others[:-1]]
            pieces, size = [others[-1]], len(others[-1])
            yield [line.removesuffix(b"\r") for line in lines]
    if size:
        yield [b"".join(pieces).removesuffix(b"\r")]


def _repeated(payloads: list[bytes], count: int) -> Iterator[list[bytes]]:
    """Many at a time: where each time is acknowledged, one by one would take long."""
    for done in range(0, count, BLOCK_ROWS):
        yield payloads * min(BLOCK_ROWS, count - done)


def _counted(batches: Iterator[list[bytes]], count: int) -> Iterator[list[bytes]]:
    if count < BAR_FROM or not sys.stderr.isatty():
        yield from batches
        return
    from rich.progress import track

    yield from track(batches, "publishing", total=ceil(count / BLOCK_ROWS), console=stdio.to_console(sys.stderr))
