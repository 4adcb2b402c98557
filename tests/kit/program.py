"""Programs with pipes for a terminal: the CLI, netcat, socat."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from unittest import mock

import pytest

from kit.broker import clean_environment
from kit.default_ports import lock_for
from kit.wire import GUARD_SECONDS
from kit.zygote import Forked, fork_command

POLYCAST = (sys.executable, "-m", "polycast")


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    out: bytes
    err: str


@contextmanager
def at_a_terminal(
    *arguments: str, streams: Sequence[str] = ("stdout",), env: Mapping[str, str] | None = None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Runs a command for which these streams are a terminal, whose other end comes with it."""
    ours, theirs = pty.openpty()
    out, err = (theirs if name in streams else subprocess.PIPE for name in ("stdout", "stderr"))
    process = subprocess.Popen(
        [*POLYCAST, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env={**clean_environment(), **(env or {})},
    )
    os.close(theirs)
    try:
        yield ours, process
    finally:
        process.kill()
        process.wait(GUARD_SECONDS)
        os.close(ours)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def polycast(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Finished:
    """Runs a command to its end. Its stderr never has a traceback."""
    with lock_for(arguments), ExitStack() as opened:
        files = [opened.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        process = fork_command(
            arguments, {**clean_environment(), **(env or {})}, [file.fileno() for file in files]
        )
        code = process.wait(GUARD_SECONDS)
        for file in files:
            file.seek(0)
        finished = Finished(code, files[1].read(), files[2].read().decode())
    assert "Traceback" not in finished.err, finished.err
    return finished


def polycast_here(*arguments: str, env: Mapping[str, str] | None = None) -> Finished:
    """The same within this process, for commands that end at once: many times faster."""
    out, err = io.BytesIO(), io.StringIO()
    text = io.TextIOWrapper(out, write_through=True)  # closes `out` when it goes
    with (
        lock_for(arguments),
        _own_umask(),
        mock.patch.object(sys, "argv", ["polycast", *arguments]),
        mock.patch.dict(os.environ, {**clean_environment(), **(env or {})}, clear=True),
        redirect_stdout(text),
        redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        runpy.run_module("polycast", run_name="__main__")
        raise SystemExit(0)
    code = end.value.code or 0
    assert isinstance(code, int)
    return Finished(code, out.getvalue(), err.getvalue())


@contextmanager
def _own_umask() -> Iterator[None]:
    """A command may change it, as its own process would."""
    before = os.umask(0o022)
    os.umask(before)
    try:
        yield
    finally:
        os.umask(before)


def need(program: str, package: str) -> str:
    """Where a program is; where it is not, the test is skipped with the cure."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed: apt-get install {package}")
    return path


class Program:
    """`with Program("nc", "127.0.0.1", port) as terminal: terminal.type(b"...")`

    A command of Polycast is forked from a process that has imported it.
    """

    def __init__(self, *command: str, env: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._env = {**clean_environment(), **(env or {})}
        self.read = b""
        self.process: Forked | subprocess.Popen[bytes]

    def __enter__(self) -> Program:
        stdin, ours = os.pipe()
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        streams = stdin, stdout, stderr
        if self._command[: len(POLYCAST)] == POLYCAST:
            self.process = fork_command(self._command[len(POLYCAST) :], self._env, streams)
        else:
            self.process = subprocess.Popen(
                self._command, stdin=stdin, stdout=stdout, stderr=stderr, env=self._env, bufsize=0
            )
        for file in streams:
            os.close(file)
        self._stdin = open(ours, "wb", buffering=0)  # noqa: PTH123
        self.stdout = open(out, "rb", buffering=0)  # noqa: PTH123
        self.stderr = open(err, "rb", buffering=0)  # noqa: PTH123
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(GUARD_SECONDS)
        for pipe in (self._stdin, self.stdout, self.stderr):
            pipe.close()

    def type(self, text: bytes) -> None:
        self._stdin.write(text)

    def end_input(self) -> None:
        self._stdin.close()

    def waits_for_input(self) -> bool:
        """Whether it has taken all that was typed, and sleeps."""
        left = array("i", [0])
        fcntl.ioctl(self._stdin, termios.FIONREAD, left)
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return left[0] == 0 and state == "S"

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def expect(self, data: bytes) -> None:
        """Exactly these bytes are the next on stdout."""
        while len(self.read) < len(data) and data.startswith(self.read) and (more := self.receive()):
            self.read += more
        assert self.read[: len(data)] == data, f"expected {data!r}, got {self.read!r}"
        self.read = self.read[len(data) :]

    def read_line(self) -> bytes:
        while b"\n" not in self.read:
            more = self.receive()
            assert more, f"ended before a line came; got {self.read!r}"
            self.read += more
        line, _, self.read = self.read.partition(b"\n")
        return line

    def finish(self) -> Finished:
        """Waits for its end, and reads the rest of its output."""
        out = self.read
        while more := self.receive():
            out += more
        err = self.stderr.read().decode()
        return Finished(self.process.wait(GUARD_SECONDS), out, err)

    def receive(self) -> bytes:
        """What comes next on stdout; nothing at its end."""
        ready, _, _ = select.select([self.stdout], [], [], GUARD_SECONDS)
        assert ready, f"{self._command} printed nothing; got {self.read!r}"
        return os.read(self.stdout.fileno(), 65536)
