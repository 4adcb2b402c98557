"""Behaviour common to all commands, and `doctor`."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.default_ports import lock_ports
from kit.program import polycast, polycast_here
from polycast.cli.doctor_checks import ends_input

COMMANDS = [
    "up", "serve", "pub", "sub", "request", "reply", "topics", "connections", "stats",
    "sql", "find", "why", "estimate", "doctor", "bench", "completion", "log", "pipeline", "cluster", "token",
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


def test_doctor_reports_a_port_in_use_and_the_cure(tmp_path: Path) -> None:
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


OPENBSD = "\t\t-n\t\tSuppress name/port resolutions\n\t\t-N\t\tShutdown the network socket after EOF on stdin\n"
OTHERS = {
    "traditional": "\t-n\t\t\tnumeric-only IP addresses, no DNS\n\t-q secs\t\t\tquit after EOF on stdin\n",
    "busybox": "Usage: nc [-iN] [-wN] [-l] [-p PORT]\n\t-l\tListen mode, for inbound connects\n",
    "ncat": "  -n, --nodns                Do not resolve hostnames via DNS\n      --no-shutdown      Continue\n",
    "macos": "\t-N num_probes\tNumber of probes to send before generating a read timeout event\n",
}


def test_doctor_knows_a_netcat_that_ends_its_input() -> None:
    assert ends_input(OPENBSD)
    assert not [name for name, usage in OTHERS.items() if ends_input(usage)]


def test_doctor_judges_the_netcat_that_is_there(tmp_path: Path) -> None:
    netcat = tmp_path / "nc"
    for usage, state in ((OPENBSD, "fine"), (OTHERS["busybox"], "missing")):
        netcat.write_text(f"#!/bin/sh\ncat >&2 <<'E'\n{usage}E\nexit 1\n")
        netcat.chmod(0o755)
        shown = polycast_here(
            "doctor", "--json", "--data", str(tmp_path), env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        )
        [finding] = [row for row in map(json.loads, shown.out.splitlines()) if row["what"] == "nc"]
        assert finding["state"] == state and str(netcat) in finding["found"]


def test_doctor_reads_the_certificate(tmp_path: Path) -> None:
    failed = polycast_here("doctor", "--data", str(tmp_path), env={"POLYCAST_TLS_CERTIFICATE": "/none.pem"})
    assert failed.code == 1
    assert "BAD certificates and tokens: cannot read tls.certificate /none.pem" in failed.out.decode()
