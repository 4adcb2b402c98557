"""A real broker in its own process, on free ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

from kit.wire import GUARD_SECONDS, Peer, wait_for
from kit.zygote import ForkedBroker, fork

ALL = ("simplest", "fanout.client", "fanout.controller", "hermod.pub", "hermod.sub", "http")


class Broker:
    """`with Broker("--forward", listen=("simplest", "simplest.peer")) as broker: broker.connect("simplest")`

    It has a log if it gets a folder. Its own events are off by default, so that the offsets and topics of a test
    are those of the test's messages. A `fresh` one is started as users start it, for
    tests of what a process takes, or how it begins and ends; any other is forked, which is many times faster, and
    may run another module than `polycast`.
    """

    def __init__(
        self,
        *arguments: str,
        listen: tuple[str, ...] = ALL,
        options: str = "",
        data: Path | None = None,
        events: bool = False,
        fresh: bool = False,
        module: str = "polycast",
    ) -> None:
        flags = [f"--listen={name}=tcp://127.0.0.1:0{options}" for name in listen]
        flags.append(f"--data={data}" if data else "--no-log")
        flags += [] if events else ["--set=events.enabled=false"]
        flags.append("--set=log.keep_free=0")  # how full the disk of this machine is, is no matter of a test
        self._command = ["serve", *flags, *arguments]
        self._fresh = fresh
        self._module = module
        handle, path = tempfile.mkstemp(prefix="polycast-test-")
        os.close(handle)
        self._stderr = Path(path)
        self.ports: dict[str, int] = {}
        self.addresses: list[tuple[str, str]] = []
        """Every listener it named, with its address."""
        self._stopping = False
        self.exit_code = 0
        """What it is expected to end with."""

    def __enter__(self) -> Broker:
        with self._stderr.open("w") as stderr:
            self.process = self._start(stderr)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "ready\n":
                return self
            _, name, address = line.split()
            self.addresses.append((name, address))
            if address.startswith("tcp:"):
                self.ports[name] = int(address.rpartition(":")[2])
        self.kill()
        self.process.stdout.close()
        raise AssertionError(f"the broker did not start: {self.log()}")

    def _start(self, stderr: IO[str]) -> subprocess.Popen[str] | ForkedBroker:
        if self._fresh:
            return start(self._command, clean_environment(), stderr)
        return fork(self._command, clean_environment(), stderr, self._module)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.stop()
        log = self.log()
        self._stderr.unlink()
        assert code == self.exit_code, log
        assert "Traceback" not in log, log

    def begin_to_stop(self) -> None:
        """A second signal would end it at once."""
        if not self._stopping and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._stopping = True

    def stop(self) -> int:
        self.begin_to_stop()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(GUARD_SECONDS)

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait(GUARD_SECONDS)
        self.exit_code = -signal.SIGKILL

    def log(self) -> str:
        return self._stderr.read_text()

    def wait_for_log(self, text: str) -> str:
        """The lines with this text, as soon as there is one."""
        lines = lambda: "\n".join(line for line in self.log().splitlines() if text in line)  # noqa: E731
        return wait_for(lines, f"{text!r} in the log")

    def connect(self, listener: str, receive_bytes: int = 0) -> Peer:
        return Peer(self.ports[listener], receive_bytes)

    def connect_file(self, listener: str) -> Peer:
        """Over the socket file that this listener has."""
        [place] = [where for name, where in self.addresses if name == listener and where.startswith("ipc:")]
        return Peer(place.removeprefix("ipc://"))


def start(arguments: list[str], env: Mapping[str, str], stderr: IO[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "polycast", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env)


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("POLYCAST_")}
