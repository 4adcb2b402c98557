"""A process that has imported all that a broker needs, and forks one wherever a test starts one.

To import it anew takes longer than most tests do. What was forked runs the same `python -m polycast`, with an
environment, streams and signals of its own. It differs from what was started: all modules are there already,
memory is shared with the zygote until it is written to, and at the end the interpreter is not taken apart.

    a request           JSON: arguments, environment, module, folder; with it stdout, stderr and a socket
    on that socket      the process id; when it has ended its exit code, as `subprocess` would give it
"""

from __future__ import annotations

import atexit
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
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
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


# -- for the tests ---------------------------------------------------------------------------------------


class Forked:
    """As much of a `subprocess.Popen` as tests use."""

    def __init__(self, pid: int, stdout: IO[str], told: socket.socket) -> None:
        self.pid = pid
        self.stdout = stdout
        self._told = told
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"broker {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], seconds)[0]:
            self.returncode = _read_number(self._told)
            self._told.close()
        return self.returncode


class Zygote:
    """One for each process that runs tests. It ends with it, however that ends, and so do all it has forked."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._asking, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = served.fileno()
        paths = filter(None, [TESTS, os.environ.get("PYTHONPATH")])
        environment = {**env, **WITHOUT_THREADS, "PYTHONPATH": os.pathsep.join(paths)}
        with served:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from kit import zygote; zygote.run({number})"],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[number],
            )  # fmt: skip
        atexit.register(self.end)

    def end(self) -> None:
        self._asking.close()
        self._process.wait()

    def fork(self, arguments: list[str], env: Mapping[str, str], stderr: IO[str], module: str) -> Forked:
        told, tell = socket.socketpair()
        output, stdout = os.pipe()
        job = {"arguments": arguments, "env": dict(env), "module": module, "folder": str(Path.cwd())}
        try:
            socket.send_fds(self._asking, [json.dumps(job).encode()], [stdout, stderr.fileno(), tell.fileno()])
        finally:
            os.close(stdout)
            tell.close()
        return Forked(_read_number(told), os.fdopen(output), told)


def _read_number(told: socket.socket) -> int:
    data = told.recv(NUMBER.size)
    assert data, "the zygote has ended"
    number: int = NUMBER.unpack(data)[0]
    return number


_beginning = threading.Lock()
_zygote: Zygote | None = None


def fork(arguments: list[str], env: Mapping[str, str], stderr: IO[str], module: str = "polycast") -> Forked:
    """Starts `python -m polycast` with these arguments."""
    global _zygote
    with _beginning:
        _zygote = _zygote or Zygote(env)
    return _zygote.fork(arguments, env, stderr, module)


# -- in the zygote ---------------------------------------------------------------------------------------


def run(number: int) -> None:
    """Returns when nobody is left who could ask. What was forked from it never returns here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the tests
    _prepare()
    living: dict[int, tuple[int, socket.socket]] = {}
    """By the file descriptor that tells the end of a process."""
    with socket.socket(fileno=number) as asked:
        while True:
            ready, _, _ = select.select([number, *living], [], [])
            for ended in living.keys() & ready:
                _bury(*living.pop(ended), ended)
            if number in ready and not _answer(asked, living):
                break
    for ended, (pid, told) in living.items():
        os.kill(pid, signal.SIGKILL)
        _bury(pid, told, ended)


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


def _answer(asked: socket.socket, living: dict[int, tuple[int, socket.socket]]) -> bool:
    data, streams, _, _ = socket.recv_fds(asked, REQUEST_BYTES, STREAMS)
    if not data:
        return False
    pid = os.fork()
    if not pid:
        _become(data, streams)
    stdout, stderr, tell = streams
    os.close(stdout)
    os.close(stderr)
    told = socket.socket(fileno=tell)
    told.send(NUMBER.pack(pid))
    living[os.pidfd_open(pid)] = pid, told
    return True


def _bury(pid: int, told: socket.socket, ended: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(ended)
    with told, suppress(OSError):  # nobody need listen any more
        told.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _become(job: bytes, streams: list[int]) -> NoReturn:
    code = 1
    try:
        code = _run(_dress(json.loads(job), *streams))
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _dress(job: dict[str, Any], stdout: int, stderr: int, _: int) -> str:
    """Takes on what belongs to this process alone."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job["env"])
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
