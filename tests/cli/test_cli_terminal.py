"""Output on a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.broker import Broker
from kit.default_ports import lock_for
from kit.frames import pub
from kit.program import at_a_terminal
from kit.room import Room
from kit.wire import GUARD_SECONDS
from log.log_builder import LogBuilder


def read_all(terminal: int) -> bytes:
    seen = b""
    try:
        while more := os.read(terminal, 65536):
            seen += more
    except OSError:  # the other end is closed
        pass
    return seen


def test_control_characters_of_a_message_are_escaped_on_a_terminal() -> None:
    with Broker() as broker, Room(broker) as room:
        at = f"tcp://127.0.0.1:{broker.ports['simplest']}"
        with at_a_terminal("sub", ">", "--at", at, "--count", "1") as (terminal, process):
            assert process.stderr
            assert b"subscribed" in process.stderr.readline()
            room.simplest()
            room.simplest(pub("evil", b"\x1b[2J\x07\x9b1m \xff tab\t end"))
            seen = read_all(terminal)
    assert b"\x1b" not in seen
    assert b"\x07" not in seen
    assert seen.decode().startswith(r"evil \x1b[2J\x07\x9b1m \xff tab")
    assert "tab\t end" in seen.decode()


@pytest.mark.parametrize("arguments", [["--help"], ["sub", "--help"], ["doctor"]])
def test_no_color_means_no_color(arguments: list[str]) -> None:
    environment = {"NO_COLOR": "1", "TERM": "xterm-256color"}
    with lock_for(arguments), at_a_terminal(*arguments, env=environment) as (terminal, _):
        assert b"\x1b[" not in read_all(terminal)


LISTINGS = ("topics", "connections", "stats")


@pytest.mark.parametrize("listing", LISTINGS)
def test_no_color_means_no_bold_either(listing: str) -> None:
    with Broker() as broker, Room(broker) as room:
        room.simplest(b"sub a\n" + pub("a"))
        at = f"tcp://127.0.0.1:{broker.ports['http']}"
        environment = {"TERM": "xterm-256color", "COLUMNS": "200"}
        with at_a_terminal(listing, "--at", at, env=environment) as (terminal, _):
            assert b"\x1b[1m" in read_all(terminal)
        with at_a_terminal(listing, "--at", at, env={**environment, "NO_COLOR": "1"}) as (terminal, _):
            assert b"\x1b" not in read_all(terminal)


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_narrow_terminal_gets_values_line_by_line(listing: str) -> None:
    """Where columns do not fit beside each other, no value is cut into pieces."""
    with Broker() as broker, Room(broker) as room:
        room.simplest(b"sub a\n" + b"".join(pub("with.a.name.of.some.length") for _ in range(1234)))
        at = f"tcp://127.0.0.1:{broker.ports['http']}"
        with at_a_terminal(listing, "--at", at, env={"TERM": "xterm", "COLUMNS": "36"}) as (terminal, _):
            lines = [line.split() for line in read_all(terminal).decode().splitlines()]
    expected = {
        "topics": [["topic", "with.a.name.of.some.length"], ["sequence", "1,234"]],
        "connections": [["dialect", "simplest"], ["listener", "simplest"], ["subscriptions", "1"]],
        "stats": [["listener", "simplest"], ["messages", "in", "1,235"]],
    }
    for line in expected[listing]:
        assert line in lines, lines


@pytest.mark.slow
def test_long_work_shows_its_progress_on_a_terminal_and_honours_no_color() -> None:
    with Broker(listen=("hermod.pub",)) as broker:
        at = f"tcp://127.0.0.1:{broker.ports['hermod.pub']}"
        command = ("pub", "m", "x", "--count", "100000", "--at", at)
        with at_a_terminal(*command, streams=("stderr",), env={"NO_COLOR": "1", "TERM": "xterm"}) as (
            terminal,
            process,
        ):
            seen = read_all(terminal)
            assert process.wait(GUARD_SECONDS) == 0
    assert b"publishing" in seen
    assert b"\x1b[3" not in seen  # colours are 30 to 38
    assert b"100%" in seen


@pytest.mark.parametrize(("command", "word"), [("verify", b"verifying"), ("seal", b"sealing")])
def test_work_on_the_log_shows_its_progress_on_a_terminal(tmp_path: Path, command: str, word: bytes) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    LogBuilder(folder).segment(5)
    environment = {"TERM": "xterm", "NO_COLOR": "1"}
    arguments = ("log", command, "--data", str(tmp_path))
    with at_a_terminal(*arguments, streams=("stderr",), env=environment) as (terminal, process):
        assert word in read_all(terminal)
        assert process.wait(GUARD_SECONDS) == 0
