"""A process that has imported everything that a command needs, and forks itself for each command of a test.

Importing takes longer than most tests. A forked command runs the same `python -m polycast`, with its own
environment, streams and signals. It differs from a fresh one: all modules are loaded, memory is shared with the
zygote until it is written, and the interpreter is not torn down at the end.

    a request           JSON: arguments, environment, module, folder; with it stdin, stdout, stderr and a socket
    on that socket      the process id, then the exit code, as `subprocess` would report it

`zygote_client.py` is a command for shells that makes such a request. Its process ends with the command, and the
command with it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from polycast.log.files.arrow import leave_pandas_out

TESTS = str(Path(__file__).parent.parent)
ROOMS = ("polycast.cli", "polycast.server", "polycast.log")
"""What a broker imports, sooner or later."""
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""A fork copies one thread: numpy and pyarrow shall start none before."""
NUMBER = struct.Struct("!i")
STREAMS = 3
REQUEST_BYTES = 1 << 18
SOCKET = "ZYGOTE_SOCKET"
"""The environment variable by which a shell's commands find the zygote."""


# -- for the tests ---------------------------------------------------------------------------------------


class Forked:
    """The part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, ended: socket.socket) -> None:
        self.pid = pid
        self._ended = ended
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._read_code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_code(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            self.returncode = _read_number(self._ended)
            self._ended.close()
        return self.returncode


class ForkedBroker(Forked):
    """With its stdout."""

    def __init__(self, pid: int, ended: socket.socket, stdout: IO[str]) -> None:
        super().__init__(pid, ended)
        self.stdout = stdout


class Zygote:
    """One for each process that runs tests. It ends with that process, and so do all commands it has forked."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._requests, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._folder = tempfile.TemporaryDirectory(prefix="polycast-zygote-")
        self.path = f"{self._folder.name}/socket"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.path)
        listener.listen()
        paths = filter(None, [TESTS, os.environ.get("PYTHONPATH")])
        environment = {**env, **WITHOUT_THREADS, "PYTHONPATH": os.pathsep.join(paths)}
        numbers = served.fileno(), listener.fileno()
        with served, listener:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from kit import zygote; zygote.run(*{numbers})"],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=numbers,
            )  # fmt: skip
        atexit.register(self.end)

    def end(self) -> None:
        self._requests.close()
        self._process.wait()
        self._folder.cleanup()

    def fork(
        self, arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[int], module: str = "polycast"
    ) -> tuple[int, socket.socket]:
        ended, reporting = socket.socketpair()
        job = {"arguments": arguments, "env": dict(env), "module": module, "folder": str(Path.cwd())}
        with reporting:
            socket.send_fds(self._requests, [json.dumps(job).encode()], [*streams, reporting.fileno()])
        return _read_number(ended), ended

    def fork_broker(
        self, arguments: Sequence[str], env: Mapping[str, str], stderr: IO[str], module: str = "polycast"
    ) -> ForkedBroker:
        output, stdout = os.pipe()
        try:
            with open(os.devnull) as stdin:  # noqa: PTH123
                pid, ended = self.fork(arguments, env, [stdin.fileno(), stdout, stderr.fileno()], module)
        finally:
            os.close(stdout)
        return ForkedBroker(pid, ended, os.fdopen(output))


def _read_number(ended: socket.socket) -> int:
    data = ended.recv(NUMBER.size)
    assert data, "the zygote has ended"
    number: int = NUMBER.unpack(data)[0]
    return number


_beginning = threading.Lock()
_zygote: Zygote | None = None


def zygote(env: Mapping[str, str]) -> Zygote:
    """The one of this process."""
    global _zygote
    with _beginning:
        _zygote = _zygote or Zygote(env)
    return _zygote


def fork(
    arguments: Sequence[str], env: Mapping[str, str], stderr: IO[str], module: str = "polycast"
) -> ForkedBroker:
    """Starts `python -m polycast` with these arguments, with a pipe as its stdout."""
    return zygote(env).fork_broker(arguments, env, stderr, module)


def fork_command(arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[int]) -> Forked:
    """The same with these files as stdin, stdout and stderr."""
    return Forked(*zygote(env).fork(arguments, env, streams))


# -- in the zygote ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Child:
    pid: int
    reports: socket.socket
    """Gets the exit code."""


def run(requests: int, listener: int) -> None:
    """Returns when the process that runs the tests has ended. A forked command never returns here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the tests
    _prepare()
    children: dict[int, Child] = {}
    """By the file descriptor that reports the end of a process."""
    with socket.socket(fileno=requests) as commands, socket.socket(fileno=listener) as shells:
        while True:
            ties = {child.reports: child for child in children.values()}
            waiting: list[int | socket.socket] = [commands, shells, *children, *ties]
            ready, _, _ = select.select(waiting, [], [])
            for tie in ties.keys() & ready:  # the client of this command has ended
                os.kill(ties[tie].pid, signal.SIGKILL)
            for ended in children.keys() & ready:
                _bury(children.pop(ended), ended)
            if shells in ready:
                with shells.accept()[0] as shell:
                    _handle(shell, children)
            if commands in ready and not _handle(commands, children):
                break
    for ended, child in children.items():
        os.kill(child.pid, signal.SIGKILL)
        _bury(child, ended)


def _prepare() -> None:
    leave_pandas_out()
    for room in ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            importlib.import_module(module.name)
    sys.argv = ["polycast", "serve", "--check"]
    assert _run("polycast") == 0  # what the command line imports only when it is used
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, f"{len(threads)} threads"
    gc.collect()
    gc.freeze()


def _handle(commands: socket.socket, children: dict[int, Child]) -> bool:
    data, files, _, _ = socket.recv_fds(commands, REQUEST_BYTES, STREAMS + 1)
    if not data:
        return False
    pid = os.fork()
    if not pid:
        _become(data, files)
    for file in files[:STREAMS]:
        os.close(file)
    reports = socket.socket(fileno=files[STREAMS])
    reports.send(NUMBER.pack(pid))
    children[os.pidfd_open(pid)] = Child(pid, reports)
    return True


def _bury(child: Child, ended: int) -> None:
    _, status = os.waitpid(child.pid, 0)
    os.close(ended)
    with child.reports, suppress(OSError):  # the client may have ended
        child.reports.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _become(job: bytes, files: list[int]) -> NoReturn:
    code = 1
    try:
        code = _run(_dress(json.loads(job), files))
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _dress(job: dict[str, Any], files: list[int]) -> str:
    """Streams, environment and folder of the new process."""
    for number, file in enumerate(files[:STREAMS]):
        os.dup2(file, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job["env"])
    os.environ.pop(SOCKET, None)
    os.chdir(job["folder"])
    sys.argv = ["polycast", *job["arguments"]]
    return str(job["module"])


def _run(module: str) -> int:
    """The code with which the interpreter would end."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
