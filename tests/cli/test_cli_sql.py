"""`polycast sql` without Spark: invalid usage is reported before Spark starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kit.program import Finished, polycast_here
from log.log_builder import LogBuilder, stop
from polycast.errors import UsageError
from polycast.pipelines.sql.query_errors import mark
from polycast.pipelines.sql.statement import read_statement

ALL = "SELECT * FROM messages"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "log"
    folder.mkdir(parents=True)
    builder = LogBuilder(folder)
    builder.segment(3)
    stop(builder)
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("Spark was to be started")

    monkeypatch.setattr("polycast.spark.session", refuse)


def sql(data: Path, *arguments: str) -> Finished:
    finished = polycast_here("sql", "--data", str(data), *arguments)
    assert (finished.code, finished.out) == (2, b"") or "cannot reach" in finished.err
    return finished


@pytest.mark.parametrize("query", ["", "  \n", " ; ;\n"])
def test_an_empty_query(data: Path, query: str) -> None:
    message, _, hint = sql(data, query).err.partition("\nhint: ")
    assert "the query is empty" in message
    assert "SELECT" in hint


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--into", "a", "--to", "b"], "--into and --to exclude each other"),
        (["--json", "--csv"], "--json and --csv exclude each other"),
        (["--into", "a", "--json"], "--json and --csv apply to printed results only"),
        (["--once"], "--once needs --into or --to"),
        (["--into", "t" * 1025], "--into is a topic of 1,025 bytes, and 1,024 are allowed"),
        (["--view", "orders"], "--view orders is not NAME=PATTERN"),
        (["--view", "a b=c"], "--view a b=c is not NAME=PATTERN"),
        (["--view", "messages=a.>"], "--view messages=a.>: the name messages is reserved for all topics"),
        (["--view", "orders="], "a pattern cannot be empty"),
        (["--into", "a", "--at", "smtp://here"], "hermod cannot use smtp addresses"),
    ],
)
def test_invalid_combinations_of_options(data: Path, arguments: list[str], text: str) -> None:
    assert text in sql(data, ALL, *arguments).err


def test_a_target_that_is_not_a_folder(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file exists" in sql(data, ALL, "--to", str(tmp_path / "file")).err


def test_with_no_log(tmp_path: Path) -> None:
    assert f"there is no log in {tmp_path}" in sql(tmp_path, ALL).err


def test_an_unreachable_broker(data: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        failed = sql(data, ALL, "--into", "a", "--at", address)
    assert failed.code == 1
    assert f"cannot reach tcp://{address}" in failed.err


def test_invalid_names_of_views() -> None:
    with pytest.raises(UsageError, match="is not NAME=PATTERN"):
        read_statement(ALL, ["1=a"])


def test_the_position_is_marked() -> None:
    assert mark("SELECT a\nFROM\tb", 9, 13) == "  SELECT a\n  FROM b\n  ^^^^"
    assert mark("SELECT", 6, 7) == "  SELECT\n        ^"
    assert mark("a\nb\nc", 0, 3) == "  a\n  ^\n  b\n  ^\n  c"
