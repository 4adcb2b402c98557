"""Sockets of pynng, each in a process of its own: nng sometimes never returns from closing one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from kit.wire import GUARD_SECONDS

CLOSE_SECONDS = 2.0
CHILD = Path(__file__).with_name("nng_child.py")


class NngSocket:
    """`with NngSocket("Sub0", topics=[b""]) as socket: socket.dial(url)`"""

    def __init__(self, kind: str, **options: Any) -> None:
        pytest.importorskip("pynng", reason="pynng is not installed: make dev")
        self._process = subprocess.Popen([sys.executable, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self._call("open", kind, {"recv_timeout": int(GUARD_SECONDS * 1000), **options})
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> NngSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def listen(self, url: str) -> None:
        self._call("listen", url)

    def dial(self, url: str, block: bool = True) -> None:
        self._call("dial", url, block)

    def subscribe(self, topic: bytes) -> None:
        self._call("subscribe", topic)

    def send(self, body: bytes) -> None:
        self._call("send", body)

    def recv(self) -> bytes:
        return bytes(self._call("recv", True))

    def recv_now(self) -> bytes | None:
        """None where nothing is there."""
        found = self._call("recv", False)
        return None if found is None else bytes(found)

    def pipes(self) -> int:
        return int(self._call("pipes"))

    def _call(self, *call: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        pickle.dump(call, self._process.stdin)
        self._process.stdin.flush()
        problem, result = pickle.load(self._process.stdout)
        assert not problem, f"{call[0]}: {problem}"
        return result

    def _end(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(GUARD_SECONDS)
        self._process.stdout.close()
