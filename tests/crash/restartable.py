"""A broker with a log that is killed and started again, on one folder and on other ports each time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from kit.broker import clean_environment
from kit.wire import GUARD_SECONDS
from kit.zygote import ForkedBroker, fork

TESTS = str(Path(__file__).parent.parent)
ENVIRONMENT = {**clean_environment(), "PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])}
"""For modules of tests that run in a process of their own."""
LISTENERS = ("hermod.pub", "hermod.sub", "simplest")


class RestartableBroker:
    """Several threads wait for its ports; one thread starts and kills it."""

    def __init__(self, data: Path, stderr: Path, listeners: Sequence[str] = LISTENERS) -> None:
        self._data = data
        self._stderr = stderr
        self._listeners = listeners
        self._changed = threading.Condition()
        self._ports: dict[str, int] = {}
        self._process: ForkedBroker | None = None
        self.lives = 0

    def start(self, *arguments: str, module: str = "polycast", **env: str) -> None:
        """Does not wait until the broker is ready."""
        listen = [f"--listen={name}=tcp://127.0.0.1:0" for name in self._listeners]
        flags = ["serve", f"--data={self._data}", *listen, *arguments]
        with self._stderr.open("a") as stderr:
            self._process = fork(flags, clean_environment() | env, stderr, module)
        self.lives += 1

    def wait_until_ready(self) -> None:
        assert self._process
        ports: dict[str, int] = {}
        for line in self._process.stdout:
            if line == "ready\n":
                self._set_ports(ports)
                return
            _, name, address = line.split()
            ports[name] = int(address.rpartition(":")[2])
        raise AssertionError(f"the broker did not start: {self.log()[-2000:]}")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        assert self._end(signal.SIGTERM) == 0, self.log()[-2000:]

    def _end(self, how: signal.Signals) -> int:
        process = self._process
        assert process
        self._set_ports({})
        process.send_signal(how)
        code = process.wait(GUARD_SECONDS)
        process.stdout.close()
        self._process = None
        return code

    def end(self) -> None:
        """Kills the broker if it is running."""
        if self._process:
            self.kill()

    def log(self) -> str:
        return self._stderr.read_text() if self._stderr.exists() else ""

    # -- for those who connect ---------------------------------------------------------------------------

    def _set_ports(self, ports: dict[str, int]) -> None:
        with self._changed:
            self._ports = ports
            self._changed.notify_all()

    def ready_port(self, listener: str) -> int | None:
        return self._ports.get(listener)

    def port(self, listener: str, given_up: threading.Event) -> int | None:
        """Waits for a port; None when the test ends."""
        with self._changed:
            while not self._ports and not given_up.is_set():
                self._changed.wait(0.05)
            return self._ports.get(listener)
