"""Every snippet in the README and the docs does what it says.

console   `$ ` begins a command, `&` behind it leaves it running; every other line must be printed by one of them
toml      a configuration that the broker accepts
python    runs, with a broker on the default addresses that keeps its log in `polycast-data`
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from kit.broker import clean_environment
from kit.wire import GUARD_SECONDS, wait_for

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BIN = Path(sys.executable).parent
DEFAULT_PORTS = (9014, 8880, 8890, 7878, 8787, 5550, 5551, 8080)


def snippets(language: str) -> list[ParameterSet]:
    found = []
    for page in PAGES:
        blocks = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks):
            found.append(pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}"))
    return found


@pytest.fixture(autouse=True)
def default_ports_are_free() -> None:
    for port in DEFAULT_PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"something listens on port {port}; stop it to run the snippets")


class Terminal:
    """Runs a block's commands one after the other, and keeps what they print."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._environment = clean_environment() | {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}

    def run(self, command: str) -> None:
        number = len(list(self._folder.iterdir()))
        out, err = self._folder / f"{number}.out", self._folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                ["bash", "-c", "exec " * command.startswith("polycast") + command.removesuffix("&")],
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env=self._environment,
            )
        if command.endswith("&"):
            self._running.append(process)
            wait_for(lambda: "ready" in out.read_text() or "subscribed" in err.read_text(), f"{command} to begin")
        else:
            assert process.wait(GUARD_SECONDS) == 0, err.read_text()

    def printed(self) -> Counter[str]:
        return Counter(line for out in self._folder.glob("*.out") for line in out.read_text().splitlines())

    def close(self) -> None:
        for process in reversed(self._running):
            process.terminate()
            process.wait(GUARD_SECONDS)


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    opened = Terminal(folder)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.parametrize("block", snippets("console"))
def test_console(block: str, tmp_path: Path) -> None:
    if re.search(r"\bnc\b", block) and not shutil.which("nc"):
        pytest.skip("netcat is not installed: apt-get install netcat-openbsd")
    lines = block.splitlines()
    expected = Counter(line for line in lines if not line.startswith("$ "))
    with terminal(tmp_path) as shell:
        for line in lines:
            if line.startswith("$ "):
                shell.run(line.removeprefix("$ ").strip())
        wait_for(lambda: not expected - shell.printed(), f"{expected - shell.printed()}")


@pytest.mark.parametrize("block", snippets("toml"))
def test_toml(block: str, tmp_path: Path) -> None:
    file = tmp_path / "polycast.toml"
    file.write_text(block)
    command = [str(BIN / "polycast"), "serve", "--check", "--config", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("block", snippets("python"))
def test_python(block: str, tmp_path: Path) -> None:
    with terminal(tmp_path) as shell:
        shell.run("polycast serve &")
        command = [sys.executable, "-c", block]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_reference_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_is_short_before_its_tables() -> None:
    before, _, _ = (ROOT / "README.md").read_text().partition("\n## ")
    assert len(before.splitlines()) <= 40
