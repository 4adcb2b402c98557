"""`polycast sub --from` and `polycast pub --batch-id`: requests to the broker, and its replies."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from client.scripted import Scripted, read_exactly, read_to_end
from kit import hermod
from kit.broker import Broker
from kit.program import POLYCAST, Program, polycast, polycast_here
from polycast.errors import UsageError
from polycast.model import StartPosition, parse_start

HELLO = b'{"batch_type":"End","offsets":true}'
NOW = 1_700_000_000.0
EVENING = 1_794_772_800.0
"""2026-11-15, 20:00 UTC."""


def read_header(connection: socket.socket) -> dict[str, Any]:
    text = b""
    while not text.endswith(b"}") or text.count(b"{") != text.count(b"}"):
        more = connection.recv(1)
        assert more, f"the client left after {text!r}"
        text += more
    found: dict[str, Any] = json.loads(text)
    return found


# -- the text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", StartPosition()),
        ("latest", "latest"),
        ("0", StartPosition(0)),
        ("9223372036854775807", StartPosition(2**63 - 1)),
        ("2026", StartPosition(2026)),
        ("@0", StartPosition(offset=0)),
        ("@2026", StartPosition(offset=2026)),
        ("-30s", StartPosition(seconds=NOW - 30)),
        ("-10m", StartPosition(seconds=NOW - 600)),
        ("-2h", StartPosition(seconds=NOW - 7200)),
        ("-1d", StartPosition(seconds=NOW - 86400)),
        ("-999999999d", StartPosition(seconds=0.0)),
        ("2026-11-15T20:00", StartPosition(seconds=EVENING)),
        ("2026-11-15 20:00:00.5", StartPosition(seconds=EVENING + 0.5)),
        ("2026-11-15T20:00Z", StartPosition(seconds=EVENING)),
        ("2026-11-15T22:00+02:00", StartPosition(seconds=EVENING)),
        ("2026-11-15", StartPosition(seconds=EVENING - 72_000)),
        ("1815-12-10", StartPosition(seconds=0.0)),
    ],
)
def test_positions_of_from(text: str, start: object) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "oldest",
        "-10",
        "-10w",
        "10m",
        "-5",
        "1.5",
        "9223372036854775808",
        "2026-13-01",
        "-1 h",
        "٥",
        "@",
        "@-1",
    ],
)
def test_invalid_positions(text: str) -> None:
    with pytest.raises(UsageError, match="not a position in the log") as caught:
        parse_start(text, NOW)
    assert "-10m" in caught.value.hint


# -- sub -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["a", "--from", "earliest"], {"topics": ["a"], "from": "earliest"}),
        (["a", "b.>", "--from=latest"], {"topics": ["a"], "patterns": ["b.>"], "from": "latest"}),
        (["a", "=b.>", "--from", "7"], {"topics": ["a", "b.>"], "from": {"topics": {"a": 7, "b.>": 7}}}),
        ([">", "--from", "2026-11-15T20:00"], {"topics": [], "patterns": [">"], "from": {"time": 1794772800000}}),
        (["a", "b.>", "--from", "@7"], {"topics": ["a"], "patterns": ["b.>"], "from": "@7"}),
        (["a", "--from", "earliest", "--dialect", "hermod"], {"topics": ["a"], "from": "earliest"}),
    ],
)
def test_sub_with_from_uses_hermod(arguments: list[str], output: dict[str, Any]) -> None:
    def script(connection: socket.socket) -> None:
        assert read_header(connection) == {**output, "offsets": True, "delivery": "committed"}
        connection.sendall(hermod.OK + b"".join(hermod.delivery("a", b"%d" % n, 7 + n) for n in range(5)))
        read_to_end(connection)

    with (
        Scripted(script) as at,
        Program(*POLYCAST, "sub", *arguments, "--count", "3", "--json", "--at", at) as program,
    ):
        done = program.finish()
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["topic"], row["sequence"], row["payload"]) for row in rows] == [
        ("a", 7, "0"),
        ("a", 8, "1"),
        ("a", 9, "2"),
    ]


def test_relative_times() -> None:
    headers: list[dict[str, Any]] = []

    def script(connection: socket.socket) -> None:
        headers.append(read_header(connection))
        connection.sendall(hermod.OK + hermod.delivery("a", b"x", 0))
        read_to_end(connection)

    before = time.time()
    with Scripted(script) as at:
        assert polycast("sub", "a", "--from", "-10m", "--count", "1", "--at", at).out == b"a x\n"
    assert (before - 601) * 1000 <= headers[0]["from"]["time"] <= (time.time() - 600) * 1000


def test_a_broker_without_a_log_is_shown_with_a_hint() -> None:
    with Broker(listen=("hermod.sub",)) as broker:
        failed = polycast("sub", "a", "--from", "earliest", "--at", f"127.0.0.1:{broker.ports['hermod.sub']}")
    assert (failed.code, failed.out) == (1, b"")
    error, hint = failed.err.splitlines()
    assert "501 from needs the log" in error
    assert hint.startswith("hint: ") and "--no-log" in hint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "--from", "soon"], "hint: write earliest, latest, @OFFSET"),
        (["a.>", "--from", "5"], "'a.>' may match many"),
        (["a", "--from", "earliest", "--dialect", "simplest"], "hint: omit --dialect"),
        (["a", "--from", "earliest", "--dialect", "ubre"], "--from needs the dialect hermod"),
        (["a", "--from"], "requires an argument"),
    ],
)
def test_wrong_usage_of_from(arguments: list[str], words: str) -> None:
    failed = polycast_here("sub", *arguments)
    assert (failed.code, failed.out) == (2, b"")
    assert words in failed.err


# -- pub -------------------------------------------------------------------------------------------------


def test_pub_once() -> None:
    messages = (
        b"".join(hermod.message("t", b"%d" % n) for n in range(3)).replace(b'": ', b'":').replace(b', "', b',"')
    )

    def script(connection: socket.socket) -> None:
        read_exactly(connection, HELLO)
        connection.sendall(hermod.ok(0))
        assert read_header(connection) == {"batch_type": "Count", "count": 6, "batch_id": "night 7"}
        read_exactly(connection, messages * 2)
        connection.sendall(hermod.ok(6))
        read_to_end(connection)

    with Scripted(script) as at:
        done = polycast("pub", "t", "-", "--count=2", "--batch-id", "night 7", "--at", at, stdin=b"0\n1\n2\n")
    assert (done.code, done.out, done.err) == (0, b"6\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch-id", ""], "1 to 256 bytes"),
        (["--batch-id", "x" * 257], "1 to 256 bytes"),
        (["--batch-id", "x", "--dialect", "ubre"], "--batch-id needs the dialect hermod"),
    ],
)
def test_wrong_usage_of_batch_id(arguments: list[str], words: str) -> None:
    failed = polycast_here("pub", "t", "x", *arguments)
    assert (failed.code, failed.out) == (2, b"")
    assert words in failed.err
