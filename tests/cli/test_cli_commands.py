"""Behaviour common to all commands, and `doctor`."""

from __future__ import annotations

import json
import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.default_ports import lock_ports
from kit.program import polycast, polycast_here

COMMANDS = [
    "up", "serve", "pub", "sub", "request", "topics", "connections", "stats",
    "sql", "find", "why", "estimate", "doctor", "bench", "log", "pipeline", "token",
]  # fmt: skip


def test_the_version() -> None:
    shown = polycast("--version")
    assert shown.code == 0
    assert re.fullmatch(rb"polycast \d+\.\d+\.\d+\S*\n", shown.out)


def test_the_help_names_every_command() -> None:
    shown = polycast_here("--help")
    assert shown.code == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", shown.out.decode(), re.MULTILINE)


def test_the_help_names_no_command_that_is_not_tested_here() -> None:
    listed = polycast_here("--help").out.decode().partition("Commands:")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\w+)", listed, re.MULTILINE) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example(command: str) -> None:
    shown = polycast_here(command, "--help")
    assert (shown.code, shown.err) == (0, "")
    last = shown.out.decode().strip().split("\n\n")[-1]
    assert " ".join(last.split()).startswith("Example: ")
    assert f"polycast {command}" in " ".join(last.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_wrong_usage(command: str) -> None:
    failed = polycast_here(command, "--no-such-option")
    assert (failed.code, failed.out) == (2, b"")
    assert "--no-such-option" in failed.err


def test_no_command_at_all_shows_the_help() -> None:
    shown = polycast()
    assert "serve" in shown.out.decode() + shown.err


# -- doctor ----------------------------------------------------------------------------------------------


def test_doctor_as_text(tmp_path: Path) -> None:
    shown = polycast("doctor", "--data", str(tmp_path))
    assert (shown.code, shown.err) == (0, "")
    text = shown.out.decode()
    for what in ("python", "scans", "open files", "port of simplest", "data folder", "nc"):
        assert re.search(rf"^(ok|--|!!|BAD) +{what}: ", text, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_doctor_in_json(tmp_path: Path) -> None:
    shown = polycast("doctor", "--json", "--data", str(tmp_path))
    findings = [json.loads(line) for line in shown.out.splitlines()]
    assert all(set(finding) == {"what", "state", "found", "cure"} for finding in findings)
    assert {finding["state"] for finding in findings} <= {"fine", "missing", "risky", "wrong"}
    assert all(finding["cure"] for finding in findings if finding["state"] != "fine")


def test_doctor_says_when_a_port_is_taken_and_what_to_do(tmp_path: Path) -> None:
    with lock_ports(), ExitStack() as stack:
        try:
            stack.enter_context(socket.create_server(("127.0.0.1", 9014)))
        except OSError as error:
            pytest.skip(f"port 9014 is not ours to take: {error}")
        shown = polycast_here("doctor", "--json", "--data", str(tmp_path))
    [finding] = [row for row in map(json.loads, shown.out.splitlines()) if row["what"] == "port of simplest"]
    assert finding["state"] != "fine"
    assert "--listen simplest=" in finding["cure"]


def test_doctor_finds_a_data_folder_that_cannot_be_written_to() -> None:
    failed = polycast_here("doctor", "--json", env={"POLYCAST_DATA": "/proc/polycast"})
    assert failed.code == 1
    [finding] = [row for row in map(json.loads, failed.out.splitlines()) if row["what"] == "data folder"]
    assert finding["state"] == "wrong"
    assert "--data" in finding["cure"]


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_doctor_finds_an_impossible_data_folder(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    failed = polycast_here("doctor", "--data", str(tmp_path / folder))
    assert failed.code == 1
    assert "BAD data folder" in failed.out.decode()
