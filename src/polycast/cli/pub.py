from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from math import ceil
from pathlib import Path

import typer

from polycast.cli import stdio
from polycast.cli.flags import AT, NO_RECONNECT, PUBLISHING_DIALECT
from polycast.cli.rights import needing
from polycast.errors import UsageError
from polycast.model import Message

NAME = "pub"
HELP = """Publish messages, and wait until the broker has accepted them.

With hermod the broker acknowledges messages, and a refusal is an error. With ubre it confirms that it has read
them. The other dialects have no acknowledgements: a refusal appears in the broker's log only, unless the broker
closes the connection at once, which is an error.

MESSAGE is the text of one message; '-' publishes each line of stdin; --file publishes a whole file as one message.

With --batch-id all messages are one batch: durable together or not at all, and once, however often the command is
repeated with that id. Prints the number of messages. Needs a broker with a log."""
EXAMPLE = "seq 1000 | polycast pub numbers -"

BATCHING_DIALECT = "hermod"
BATCH_ID_BYTES = 256
LINE_BYTES = 2**30
BLOCK_ROWS = 1000
BAR_FROM = 100_000
"""Number of messages from which on a progress bar is shown."""


def run(
    topic: str = typer.Argument(help="The topic to publish on."),
    message: str | None = typer.Argument(None, help="The message, or '-' for the lines of stdin."),
    dialect: str = PUBLISHING_DIALECT,
    at: str = AT,
    count: int = typer.Option(1, min=1, help="Publish the message this many times."),
    file: str | None = typer.Option(None, help="Publish this file; '-' for all of stdin.", metavar="F"),
    batch_id: str | None = typer.Option(None, help="Publish one idempotent batch with this id.", metavar="ID"),
    no_reconnect: bool = NO_RECONNECT,
) -> None:
    from polycast.client import connect, to_client_session

    _check(dialect, message, file, batch_id)
    side = to_client_session(dialect, publishing=True)
    side.encode(Message(topic, b""))
    batches = to_lines(stdio.read_stdin()) if message == "-" else iter([[_read_payload(message, file)]])
    if message != "-" or count > 1:
        payloads = list(chain.from_iterable(batches))
        for payload in payloads:
            side.encode(Message(topic, payload))
        batches = _repeated(payloads, count)
    if batch_id is not None:
        batches = iter([list(chain.from_iterable(batches))])
    with (
        needing(f"publish {topic}"),
        connect(dialect, at, publishing=True, reconnect=not no_reconnect) as client,
    ):
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
        hint = f"omit --dialect, or write --dialect {BATCHING_DIALECT}"
        raise UsageError(f"--batch-id needs the dialect {BATCHING_DIALECT}", hint)
    if batch_id is not None and not 0 < len(batch_id.encode(errors="surrogateescape")) <= BATCH_ID_BYTES:
        raise UsageError(
            f"--batch-id takes 1 to {BATCH_ID_BYTES} bytes", "a name and a number, as in orders-17, do"
        )


def _read_payload(message: str | None, file: str | None) -> bytes:
    if message is not None:
        return message.encode(errors="surrogateescape")
    if file == "-":
        return b"".join(stdio.read_stdin())
    assert file is not None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", "--file - reads stdin") from error


def to_lines(blocks: Iterable[bytes], limit: int = LINE_BYTES) -> Iterator[list[bytes]]:
    """Lists of lines, one list per read. A long line is joined once, at its end."""
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
    """Lists of many messages: single ones would each wait for an acknowledgement."""
    for done in range(0, count, BLOCK_ROWS):
        yield payloads * min(BLOCK_ROWS, count - done)


def _counted(batches: Iterator[list[bytes]], count: int) -> Iterator[list[bytes]]:
    if count < BAR_FROM or not sys.stderr.isatty():
        yield from batches
        return
    from rich.progress import track

    yield from track(batches, "publishing", total=ceil(count / BLOCK_ROWS), console=stdio.to_console(sys.stderr))
