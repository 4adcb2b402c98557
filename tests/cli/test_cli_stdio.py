"""Commands whose stdin, stdout or stderr is closed or full; early interrupts."""

from __future__ import annotations

import select
import shlex
import signal
import subprocess
import sys

import pytest

from kit.broker import Broker, clean_environment
from kit.default_ports import lock_for
from kit.frames import pub
from kit.program import POLYCAST, Finished, Program
from kit.room import Room
from kit.wire import GUARD_SECONDS, wait_for


def at(broker: Broker, listener: str) -> str:
    return f"--at=tcp://127.0.0.1:{broker.ports[listener]}"


def redirected(redirection: str, *arguments: str) -> list[str]:
    return ["bash", "-c", f"exec {shlex.join([*POLYCAST, *arguments])} {redirection}"]


def run(redirection: str, *arguments: str) -> Finished:
    done = subprocess.run(
        redirected(redirection, *arguments), stdin=subprocess.DEVNULL, capture_output=True,
        env=clean_environment(), timeout=GUARD_SECONDS, check=False,
    )  # fmt: skip
    return Finished(done.returncode, done.stdout, done.stderr.decode())


# -- stdout ----------------------------------------------------------------------------------------------

CANNOT_WRITE = {">/dev/full": "No space left on device", ">&-": "it is closed"}

no_stdout = pytest.mark.parametrize("redirection", CANNOT_WRITE)


def to_words(redirection: str) -> str:
    return f"polycast: cannot write to stdout: {CANNOT_WRITE[redirection]}\n"


@no_stdout
@pytest.mark.parametrize(
    "command", [["topics"], ["topics", "--json"], ["connections"], ["stats"], ["request", "polycast/topics"]]
)
def test_a_response_that_cannot_be_written(
    broker: Broker, room: Room, command: list[str], redirection: str
) -> None:
    room.simplest(pub("a.topic"))
    assert run(redirection, *command, at(broker, "http")) == Finished(1, b"", to_words(redirection))


@no_stdout
@pytest.mark.parametrize("command", [["--version"], ["--help"], ["pub", "--help"], ["doctor", "--json"]])
def test_messages_that_cannot_be_written_to_stderr(command: list[str], redirection: str) -> None:
    with lock_for(command):
        assert run(redirection, *command) == Finished(1, b"", to_words(redirection))


@no_stdout
def test_messages_that_cannot_be_written(broker: Broker, room: Room, redirection: str) -> None:
    with Program(*redirected(redirection, "sub", "m", at(broker, "simplest"))) as subscriber:
        assert b"subscribed" in subscriber.stderr.readline()
        room.simplest()
        room.simplest(pub("m", b"x"))
        done = subscriber.finish()
    assert (done.code, done.err) == (1, to_words(redirection))


@no_stdout
def test_commands_without_output_need_no_stdout(broker: Broker, room: Room, redirection: str) -> None:
    subscriber = room.simplest(b"sub m\n")
    assert run(redirection, "pub", "m", "x", at(broker, "hermod.pub")) == Finished(0, b"", "")
    subscriber.expect(pub("m", b"x"))


def test_a_reader_that_stops_is_no_error(broker: Broker, room: Room) -> None:
    """There is more than a pipe holds."""
    room.simplest(b"".join(pub(f"{number}." + "n" * 1000) for number in range(200)))
    done = run("| head -n 1", "topics", at(broker, "http"))
    assert done.err == ""
    assert done.out.startswith(b"topic")


# -- stdin -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["pub", "m", "-"], ["pub", "m", "--file", "-"], ["request", "x", "-"]])
def test_nothing_to_read_from(broker: Broker, command: list[str]) -> None:
    listener = "hermod.pub" if command[0] == "pub" else "http"
    failed = run("<&-", *command, at(broker, listener))
    assert failed == Finished(1, b"", "polycast: cannot read stdin: it is closed\n")


def test_commands_without_input_need_no_stdin(broker: Broker, room: Room) -> None:
    room.simplest(pub("m"))
    done = run("<&-", "topics", at(broker, "http"))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"topic ")


# -- stderr ----------------------------------------------------------------------------------------------

no_stderr = pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])


@no_stderr
def test_the_exit_code_is_the_same_when_stderr_is_closed(broker: Broker, redirection: str) -> None:
    assert run(redirection, "pub", "m", at(broker, "hermod.pub")) == Finished(2, b"", "")
    assert run(redirection, "request", "nowhere", at(broker, "http")) == Finished(1, b"", "")


@no_stderr
def test_sub_runs_with_stderr_closed(broker: Broker, room: Room, redirection: str) -> None:
    """`sub` cannot report its subscription here: publish until a message arrives."""
    with Program(*redirected(redirection, "sub", "m", "--count=1", at(broker, "simplest"))) as subscriber:

        def receives() -> bool:
            room.simplest(pub("m", b"x"))
            return bool(select.select([subscriber.stdout], [], [], 0)[0])

        wait_for(receives, "a message to arrive")
        assert subscriber.finish() == Finished(0, b"m x\n", "")


def test_all_streams_closed(broker: Broker) -> None:
    assert run("<&- >&- 2>&-", "pub", "m", "x", at(broker, "hermod.pub")).code == 0
    assert run("<&- >&- 2>&-", "topics", at(broker, "http")).code == 1


# -- interrupts ------------------------------------------------------------------------------------------

INTERRUPTED_IMPORT = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == interrupting:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
interrupting, sys.argv[1] = sys.argv[1], "topics"
runpy.run_module("polycast", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["polycast.cli.stdio", "typer", "polycast.cli.topics", "polycast.client"])
def test_an_interrupt_while_modules_are_imported(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module],
        capture_output=True,
        env=clean_environment(),
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, b"", b"")
