"""The snippets of the README and of docs/, and a terminal to run them in."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from kit.broker import clean_environment
from kit.default_ports import DEFAULT_PORTS, lock_ports
from kit.wire import GUARD_SECONDS, wait_for
from kit.zygote import SOCKET, zygote

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BIN = Path(sys.executable).parent
CLIENT = Path(__file__).with_name("zygote_client.py")
OURS = re.compile(r"(\w+=\S+ )*polycast ")
"""A command of ours, perhaps with something for its environment before it."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def snippets(language: str) -> list[ParameterSet]:
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, language))
    ]


@contextmanager
def default_ports() -> Iterator[None]:
    """For one test at a time, also of those that run in other processes."""
    with lock_ports():
        for port in DEFAULT_PORTS:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    pytest.skip(f"something listens on port {port}; stop it to run the snippets")
        yield


def has_begun(out: Path, err: Path) -> bool:
    return "ready" in out.read_text() or any(word in err.read_text() for word in ("subscribed", "serving"))


@cache
def commands() -> Path:
    """A folder with the command `polycast`, which the zygote runs."""
    folder = Path(tempfile.mkdtemp(prefix="polycast-commands-"))
    atexit.register(shutil.rmtree, folder)
    command = folder / "polycast"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {CLIENT} "$@"\n')
    command.chmod(0o755)
    return folder


class Terminal:
    """Runs a block's commands one after the other, and keeps what they print."""

    def __init__(self, folder: Path, seconds: float = GUARD_SECONDS) -> None:
        self.folder = folder
        self._seconds = seconds
        self._running: list[subprocess.Popen[bytes]] = []
        self._environment = clean_environment() | {
            "PATH": f"{commands()}:{BIN}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            SOCKET: zygote(clean_environment()).path,
        }

    def run(self, command: str) -> None:
        number = len(list(self.folder.iterdir()))
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                ["bash", "-c", "exec " * command.startswith("polycast") + command.removesuffix("&")],
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=self._environment,
                start_new_session=True,
            )
        if command.endswith("&"):
            self._running.append(process)
            if OURS.match(command):
                wait_for(
                    lambda: has_begun(out, err) or process.poll() is not None, f"{command} to begin", self._seconds
                )
                assert has_begun(out, err), err.read_text()
        else:
            assert process.wait(self._seconds) == 0, err.read_text()

    def run_block(self, block: str) -> None:
        """Its commands; every other line must be printed by one of them."""
        lines = block.splitlines()
        expected = Counter(line for line in lines if not line.startswith("$ "))
        for line in lines:
            if line.startswith("$ "):
                self.run(line.removeprefix("$ ").strip())
        wait_for(lambda: not expected - self.printed(), f"{expected - self.printed()}")

    def printed(self) -> Counter[str]:
        return Counter(line for out in self.folder.glob("*.out") for line in out.read_text().splitlines())

    def close(self) -> None:
        for process in reversed(self._running):
            os.killpg(process.pid, 15)
            process.wait(GUARD_SECONDS)


@contextmanager
def terminal(folder: Path, seconds: float = GUARD_SECONDS) -> Iterator[Terminal]:
    opened = Terminal(folder, seconds)
    try:
        yield opened
    finally:
        opened.close()
