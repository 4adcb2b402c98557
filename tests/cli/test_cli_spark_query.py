"""`polycast why`, `estimate` and `find`: invalid usage is reported before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.program import Finished, polycast_here
from log.log_builder import LogBuilder, stop


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Offsets 100 to 104, a gap up to 149, then 150 to 154."""
    folder = tmp_path / "data" / "log"
    folder.mkdir(parents=True)
    builder = LogBuilder(folder)
    builder.next = 100
    builder.begin()
    builder.add(5)
    builder.skip(45)
    builder.add(5)
    builder.end()
    stop(builder)
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(command: str, master: str) -> None:
        raise AssertionError("Spark was started")

    for command in ("why", "estimate", "find"):
        monkeypatch.setattr(f"polycast.cli.{command}.spark_session", begin)


def run_with(data: Path, *arguments: str) -> Finished:
    found = polycast_here(*arguments, "--data", str(data))
    assert found.out == b""
    return found


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        ("155", "offset 155 does not exist yet: the last offset is 154"),
        ("99", "offset 99 was removed: the log starts at offset 100"),
        ("120", "offset 120 is unused or unreadable"),
    ],
)
def test_why_of_a_message_that_is_not_there(data: Path, offset: str, words: str) -> None:
    failed = run_with(data, "why", offset)
    assert (failed.code, failed.err.splitlines()[0]) == (1, f"polycast: {words}")
    assert failed.err.splitlines()[1].startswith("hint: ")


@pytest.mark.parametrize("offset", ["x", "1.5", "17th", "", "٣"])
def test_why_of_an_invalid_offset(data: Path, offset: str) -> None:
    failed = run_with(data, "why", offset)
    assert (failed.code, failed.err.splitlines()[0]) == (2, f"polycast: {offset!r} is not an offset")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["estimate", ""], "a pattern cannot be empty"),
        (["estimate", "a", "--since", "soon"], "--since soon is not a position in the log"),
        (["estimate", "a", "--since", "17"], "--since 17 is not a time"),
        (["find"], "nothing to search for"),
        (["find", "x", "--field", "a"], "--field a is not NAME=VALUE"),
        (["find", "x", "--topic", ""], "a pattern cannot be empty"),
        (["find", "x", "--from", "latest"], "--from latest is not a position in the log"),
        (["find", "x", "--to", "2026-99-01"], "--to 2026-99-01 is not a position in the log"),
        (["find", "x", "--in", "sea"], "--in sea is not searchable"),
    ],
)
def test_invalid_queries(data: Path, arguments: list[str], words: str) -> None:
    failed = run_with(data, *arguments)
    assert (failed.code, failed.err.splitlines()[0]) == (2, f"polycast: {words}")
    assert failed.err.splitlines()[1].startswith("hint: ")


@pytest.mark.parametrize("arguments", [["why", "1"], ["estimate", ">"], ["find", "x"]])
def test_with_no_log(tmp_path: Path, arguments: list[str]) -> None:
    failed = run_with(tmp_path / "nothing", *arguments)
    assert (failed.code, failed.err.splitlines()[0]) == (2, f"polycast: there is no log in {tmp_path / 'nothing'}")


def test_without_a_lake(data: Path) -> None:
    failed = run_with(data, "find", "x", "--in", "lake")
    assert (failed.code, failed.err.splitlines()[0]) == (2, f"polycast: there is no lake in {data / 'lake'}")
    assert "archive" in failed.err
