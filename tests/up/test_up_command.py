"""The command `polycast up`, without Spark."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kit.broker import ALL
from kit.program import POLYCAST, Program, at_a_terminal, polycast, polycast_here
from kit.wire import GUARD_SECONDS, wait_for

LISTENERS = (*ALL, "nanomsg.pub", "nanomsg.sub")
LISTEN = [f"--listen={name}=tcp://127.0.0.1:0" for name in LISTENERS]
UP = ("up", "--demo", "--no-spark", *LISTEN)
BOTH = ("stdout", "stderr")
SIZE = {"TERM": "xterm", "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1"}


def read_until(program: Program, line: str) -> list[str]:
    """The lines up to this one, inclusive."""
    lines = [""]
    while lines[-1] != line:
        lines.append(program.read_line().decode())
    return lines[1:]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.slow
def test_output_in_a_pipe_and_stop_by_signal(tmp_path: Path) -> None:
    with Program(*POLYCAST, *UP, "--data", str(tmp_path)) as program:
        lines = read_until(program, "demo running")
        program.interrupt()
        done = program.finish()
    assert done.code == 0
    assert [line.split()[2] for line in lines if line.startswith("broker listening")] == list(LISTENERS)
    [port] = [line.rpartition(":")[2] for line in lines if line.startswith("broker listening http")]
    others = [line for line in lines if not line.startswith("broker listening")]
    assert others == [
        "broker starting", "broker ready", f"console http://127.0.0.1:{port}/", "demo starting", "demo running",
    ]  # fmt: skip
    assert done.out.decode().splitlines() == ["demo stopped", "broker stopped"]
    assert "broker: " in done.err and "Traceback" not in done.err
    assert list((tmp_path / "log").iterdir())


@pytest.mark.slow
def test_killing_the_supervisor_ends_all_parts(tmp_path: Path) -> None:
    with Program(*POLYCAST, *UP, "--data", str(tmp_path)) as program:
        read_until(program, "demo running")
        children = children_of(program.process.pid)
        assert len(children) == 2
        program.process.kill()
        wait_for(lambda: all(map(is_gone, children)), "the children to end")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        failed = polycast("up", f"--listen=http={address}", "--set=log.enabled=false")
    assert failed.code == 1
    assert failed.out.decode().splitlines()[0] == "broker starting"
    [words] = [line for line in failed.err.splitlines() if line.startswith("polycast: ")]
    assert address in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen=http"], "--listen http: expected NAME=ADDRESS"),
        (["--set=limits.payload_byte=1"], "unknown setting limits.payload_byte"),
        (["--config=/nowhere.toml"], "cannot read the configuration /nowhere.toml"),
    ],
)
def test_wrong_usage_is_reported_before_any_start(arguments: list[str], words: str) -> None:
    failed = polycast_here("up", *arguments)
    assert (failed.code, failed.out) == (2, b"")
    assert words in failed.err


# -- on a terminal ---------------------------------------------------------------------------------------


class Screen:
    """The text on the terminal, without control sequences."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._read = b""

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._read.decode(errors="replace"))

    def read(self) -> bool:
        """Reads more; false at the end."""
        try:
            more = os.read(self._terminal, 65536)
        except OSError:  # the other end is closed
            more = b""
        self._read += more
        return bool(more)


@pytest.mark.slow
def test_on_a_terminal_there_is_a_display(tmp_path: Path) -> None:
    with at_a_terminal(*UP, "--data", str(tmp_path), streams=BOTH, env=SIZE) as (terminal, process):
        screen = Screen(terminal)
        while not re.search(r"in [1-9]\d*  out [1-9]", screen.text):
            assert screen.read(), screen.text
        process.send_signal(signal.SIGTERM)
        while screen.read():
            pass
        assert process.wait(GUARD_SECONDS) == 0
    seen = screen.text
    assert re.search(r"Polycast +http://127\.0\.0\.1:\d+/", seen)
    assert re.search(r"broker +running", seen) and re.search(r"demo +running", seen)
    assert re.search(r"connections 1\d", seen) and re.search(r"log [\d.,]+ (bytes|KiB|MiB)", seen)
    assert "Traceback" not in seen
    last = seen[seen.rindex("Polycast") :]
    assert re.search(r"broker +stopped", last) and re.search(r"demo +stopped", last)


def test_the_module_exits_if_its_parent_has_ended() -> None:
    """The parent ended before the check."""
    command = [
        sys.executable,
        "-m",
        "polycast.up.parent_death",
        "1",
        str(int(signal.SIGKILL)),
        "polycast",
        "--version",
    ]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")


@pytest.mark.slow
def test_a_cluster_on_a_terminal_and_its_end_by_an_interrupt(tmp_path: Path) -> None:
    """Three servers and three nodes: the display has the state, the offset and the lag of each, and the leader."""
    pytest.importorskip("nats", reason="pip install 'polycast[cluster]'")
    flags = ("up", "--nodes=3", "--no-spark", "--listen=http=tcp://127.0.0.1:0", "--data", str(tmp_path))
    row = r"n%d +ready +[1-9]\d* +0\b"
    with at_a_terminal(*flags, streams=BOTH, env=SIZE) as (terminal, process):
        screen = Screen(terminal)
        while not all(re.search(row % number, screen.text) for number in (1, 2, 3)):
            assert screen.read(), screen.text
        started = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        while screen.read():
            pass
        assert process.wait(GUARD_SECONDS) == 0
    assert len(started) == 6 and all(is_gone(pid) for pid in started)
    seen = screen.text
    assert re.search(r"node +state +offset +lag +leader of the stream", seen)
    assert re.search(r"n1 +ready +\d+ +0 +nats-n[123]", seen)
    assert "Traceback" not in seen
    last = seen[seen.rindex("Polycast") :]
    for name in ("nats-n1", "nats-n2", "nats-n3", "broker", "n2", "n3"):
        assert re.search(rf"\b{name} +stopped", last), name
