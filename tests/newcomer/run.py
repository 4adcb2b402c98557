"""What a stranger does: clone into an empty folder, `make run`, look at it, ctrl-C.

    python3 tests/newcomer/run.py [REPOSITORY]

The machine has what a newcomer's has, and no more: no Java in PATH or JAVA_HOME, an empty home, and nothing in the
environment but what pip needs to find packages here. It takes nothing but Python and the default ports, and some
minutes, because everything is installed.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PORTS = (9014, 7878, 8787, 8880, 8890, 5550, 5551, 8080)
JAVA = ("java", "javac", "jar", "keytool", "jps", "jshell", "jlink")
START_SECONDS = 20 * 60
"""When it is taken to hang; most of it is pip's."""
STOP_SECONDS = 30
PAGE = "http://127.0.0.1:8080"
SQL = '{"query": "SELECT dialect, count(*) AS messages FROM messages GROUP BY dialect", "limit": 10}'


class NewcomerError(Exception):
    pass


def show(words: str) -> None:
    sys.stdout.write(f"newcomer: {words}\n")
    sys.stdout.flush()


# -- the machine -----------------------------------------------------------------------------------------


def make_path(folder: Path, path: str, python: str) -> None:
    """A folder of links to all programs but Java's. Of this Python there may be a shim that needs the old home."""
    folder.mkdir()
    for place in map(Path, path.split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if program.name not in JAVA and not program.name.startswith("python") and not link.is_symlink():
                link.symlink_to(program)
    wrapper = folder / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
    wrapper.chmod(0o755)


def make_environment(path: Path, home: Path, known: Mapping[str, str]) -> dict[str, str]:
    home.mkdir()
    inherited = {name: value for name, value in known.items() if name.startswith("PIP_")}
    config = Path(known.get("XDG_CONFIG_HOME") or Path(known["HOME"]) / ".config") / "pip" / "pip.conf"
    if config.exists():
        inherited.setdefault("PIP_CONFIG_FILE", str(config))
    return {"PATH": str(path), "HOME": str(home), "LANG": "C.UTF-8", **inherited}


def processes_of(home: Path) -> list[tuple[int, str]]:
    """All that live in that home, with their command lines."""
    return [(pid, command) for pid, command in _processes() if f"HOME={home}" in _environment(pid)]


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if command:  # a process that has ended has none
                yield int(entry.name), command.strip()


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def listening(ports: Iterable[int]) -> list[int]:
    found = []
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


# -- what a newcomer sees --------------------------------------------------------------------------------


class Newcomer:
    def __init__(self, folder: Path, repository: Path) -> None:
        self.home = folder / "home"
        self.clone = folder / "polycast"
        make_path(folder / "bin", os.environ["PATH"], sys.executable)
        self.environment = make_environment(folder / "bin", self.home, os.environ)
        self._out = folder / "make.out"
        self.run("git", "clone", "--quiet", str(repository), str(self.clone), at=folder)

    def run(self, *command: str, at: Path | None = None) -> str:
        """What it printed."""
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, cwd=at or self.clone, timeout=120
        )
        if done.returncode:
            raise NewcomerError(f"{shlex.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
        return done.stdout

    def start(self) -> None:
        """In a group of its own, as a terminal has it."""
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                ["make", "run"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env=self.environment, cwd=self.clone, start_new_session=True,
            )  # fmt: skip

    def output(self) -> str:
        return self._out.read_text(errors="replace") if self._out.exists() else ""

    def wait_for(self, what: str, look: Callable[[], str]) -> None:
        """Polls until there is a result."""
        reason, end = "", time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                show(f"{what}: {look()}")
                return
            except (NewcomerError, OSError, subprocess.TimeoutExpired) as error:
                reason = str(error)
            if self.process.poll() is not None:
                raise NewcomerError(f"make run ended with {self.process.returncode} before {what}")
            time.sleep(1)
        raise NewcomerError(f"waited in vain for {what}: {reason}")

    def look_at_broker(self) -> str:
        """Somebody else's may have taken the ports meanwhile."""
        response = json.loads(self.run(".venv/bin/polycast", "request", "polycast/log"))
        if not Path(response["folder"]).is_relative_to(self.clone.resolve()):
            raise NewcomerError(f"its log is in {response['folder']}, which is not ours")
        return f"{response['next']:,} messages in its log"

    def look_at_dialects(self) -> str:
        self.run(".venv/bin/python", str(Path(__file__).with_name("talk.py")))
        return "all five receive from each other"

    def look_at_readiness(self) -> str:
        try:
            with urllib.request.urlopen(f"{PAGE}/readyz", timeout=10) as response:
                return str(response.read().decode().strip())
        except urllib.error.HTTPError as error:
            raise NewcomerError(error.read().decode().strip()) from error

    def look_at_console(self) -> str:
        with urllib.request.urlopen(f"{PAGE}/", timeout=10) as response:
            page, kind = response.read().decode(), response.headers["Content-Type"]
        if not kind.startswith("text/html") or "Polycast" not in page:
            raise NewcomerError(f"no console at {PAGE}/, but {len(page):,} characters of {kind}")
        return f"{len(page):,} characters"

    def look_at_sql(self) -> str:
        response = self.run(".venv/bin/polycast", "request", "spark/sql", SQL).strip()
        if '"rows":[]' in response.replace(" ", ""):
            raise NewcomerError("no rows yet")
        return response

    def look_at_traffic(self) -> str:
        return self.run(".venv/bin/polycast", "sub", "polycast/traffic/>", "--count", "1").strip()[:200]

    def stop(self) -> None:
        """ctrl-C: everybody in the foreground gets it."""
        began = time.monotonic()
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise NewcomerError(f"ctrl-C did not stop it within {STOP_SECONDS} s") from None
        show(f"ctrl-C: stopped after {time.monotonic() - began:.1f} s with {code}")
        if left := processes_of(self.home):
            raise NewcomerError("left behind: " + "; ".join(f"{pid} {command[:200]}" for pid, command in left))
        if ports := listening(PORTS):
            raise NewcomerError(f"something still listens on {ports}")
        if "Traceback" in self.output():
            raise NewcomerError("a part printed a traceback")

    def clear(self) -> None:
        for pid, _ in processes_of(self.home):
            os.kill(pid, signal.SIGKILL)


def visit(newcomer: Newcomer) -> None:
    began = time.monotonic()
    newcomer.start()
    newcomer.wait_for("broker", newcomer.look_at_broker)
    newcomer.wait_for("dialects", newcomer.look_at_dialects)
    show(f"{time.monotonic() - began:.0f} s after make run")
    newcomer.wait_for("readiness", newcomer.look_at_readiness)
    newcomer.wait_for("console", newcomer.look_at_console)
    newcomer.wait_for("SQL by Spark", newcomer.look_at_sql)
    newcomer.wait_for("traffic by Spark", newcomer.look_at_traffic)
    show(f"{time.monotonic() - began:.0f} s after make run")
    newcomer.stop()


def main(repository: Path) -> int:
    if taken := listening(PORTS):
        show(f"something listens on {taken}; stop it first")
        return 1
    with tempfile.TemporaryDirectory(prefix="polycast-newcomer-", ignore_cleanup_errors=True) as folder:
        newcomer = Newcomer(Path(folder), repository)
        try:
            visit(newcomer)
        except NewcomerError as error:
            show(f"failed: {error}")
            sys.stdout.write("".join(f"    {line}\n" for line in newcomer.output().splitlines()[-40:]))
            return 1
        finally:
            newcomer.clear()
    show("fine")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
