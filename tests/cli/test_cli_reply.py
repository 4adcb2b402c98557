"""`polycast reply`: a program responds to requests."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from access.gate import write_config
from kit.broker import Broker
from kit.program import POLYCAST, Program, polycast_here
from kit.wire import wait_for
from polycast.cli import program_runner
from polycast.cli.program_runner import ProgramRunner, to_output_body
from polycast.client import Client, connect, to_body
from polycast.dialects.client_requests import Response
from polycast.model import Body, Format

LISTEN = ("http",)
SHELL = "sh", "-c"
EVIL = "; touch PWNED; `touch PWNED` $(touch PWNED) | touch PWNED\n' \" & touch PWNED"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(listen=LISTEN) as started:
        yield started


def at(broker: Broker) -> str:
    return f"tcp://127.0.0.1:{broker.ports['http']}"


@contextmanager
def replying(broker: Broker, *arguments: str) -> Iterator[Program]:
    with Program(*POLYCAST, "reply", "--at", at(broker), *arguments) as program:
        assert program.stderr.readline().startswith(b"serving ")
        yield program


# -- one run ---------------------------------------------------------------------------------------------


def respond(
    *command: str, body: bytes = b"", parallel: int = 4, seconds: float = 60.0, count: int = 1
) -> list[Response]:
    async def run() -> list[Response]:
        runner = ProgramRunner(command, parallel, seconds)
        return await asyncio.gather(*(runner.run(Body(body, Format.TEXT)) for _ in range(count)))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("output", "body"),
    [
        (b'{"a": 1}\n', Body(b'{"a": 1}\n', Format.JSON)),
        (b"42\n", Body(b"42\n", Format.JSON)),
        (b'"quoted"\n', Body(b"quoted", Format.TEXT)),
        (b"two\nlines\n\n", Body(b"two\nlines\n", Format.TEXT)),
        (b"{not json", Body(b"{not json", Format.TEXT)),
        (b"NaN", Body(b"NaN", Format.TEXT)),
        (b"[" * 100_000, Body(b"[" * 100_000, Format.TEXT)),
        (b'"\\ud800"', Body(b'"\\ud800"', Format.TEXT)),
        (b"\xff\n", Body(b"\xff\n", Format.BYTES)),
        (b"", Body()),
    ],
)
def test_the_format_of_the_output(output: bytes, body: Body) -> None:
    assert to_output_body(output) == body


def test_the_body_is_never_a_part_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [echoed] = respond("cat", body=EVIL.encode())
    assert echoed == Response(True, Body(EVIL.encode(), Format.TEXT))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no; echo first >&2; echo 'the last  ' >&2; echo >&2; exit 3", "the last"),
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "ended by signal 9"),
        ("printf '\\377bad' >&2; exit 1", "\ufffdbad"),
    ],
)
def test_a_failure(script: str, reason: str) -> None:
    assert respond(*SHELL, script) == [Response(False, to_body(reason))]


def test_a_program_need_not_read_its_stdin() -> None:
    [done] = respond("true", body=b"x" * (1 << 22))
    assert done == Response(True, Body())


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    [failed] = respond(str(tmp_path / "none"))
    assert failed.value == f"cannot run {tmp_path}/none: No such file or directory"


def test_a_program_that_never_ends_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    [failed] = respond(*SHELL, f"sleep 1000 & echo $! > {pids}; echo $$ >> {pids}; wait", seconds=0.5)
    assert failed.value == "Timeout: it ran longer than 0.5 s"
    wait_for(lambda: not any(map(is_alive, map(int, pids.read_text().split()))), "the end of the processes")


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_that_writes_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_runner, "OUTPUT_BYTES", 100_000)
    assert respond("yes") == [Response(False, to_body("TooLarge: the output is longer than 100,000 bytes"))]
    [failed] = respond(*SHELL, "yes | head -c 3000000 >&2; echo the end >&2; exit 1")
    assert failed.value == "the end"


def test_a_flood_fails_at_once_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_runner, "WAITING_AT_MOST", 3)
    found = respond(*SHELL, "cat", body=b"x", parallel=2, count=50)
    assert [response.success for response in found].count(True) == 5
    assert {response.value for response in found} == {"x", "Busy: 3 requests wait"}
    monkeypatch.setattr(program_runner, "WAITING_BYTES", 10)
    found = respond("cat", body=b"xxxxxx", parallel=1, count=3)
    assert [response.success for response in found].count(True) == 2


def test_no_more_run_at_once_than_allowed(tmp_path: Path) -> None:
    """Each run counts those that run with it."""
    script = f"touch {tmp_path}/$$; ls {tmp_path} | wc -l; rm {tmp_path}/$$"
    found = respond(*SHELL, script, parallel=2, count=12)
    assert all(response.success and 1 <= response.value <= 2 for response in found)


# -- the command -----------------------------------------------------------------------------------------


def test_requests_get_responses(broker: Broker, tmp_path: Path) -> None:
    double = "import json, sys; print(2 * json.load(sys.stdin))"
    with replying(broker, "--count", "2", "math/double", sys.executable, "-c", double) as program:
        finished = polycast_here("request", "math/double", "21", "--at", at(broker))
        assert (finished.code, json.loads(finished.out)) == (0, 42)
        failed = polycast_here("request", "math/double", "x", "--at", at(broker))
        assert failed.code == 1 and "JSONDecodeError" in failed.err
        ended = program.finish()
    assert (ended.code, ended.out, ended.err) == (0, b"", "")


def test_slow_programs_run_side_by_side(broker: Broker, tmp_path: Path) -> None:
    """The first waits for the second."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f'read which; if [ "$which" = 1 ]; then cat {fifo}; else echo "from 2" > {fifo}; fi'
    with replying(broker, "meet", *SHELL, script), connect("ubre", at(broker)) as client:
        data, number = client._connection.session.to_request("meet", to_body("1\n"))
        client._connection.send(data)
        assert client.request("meet", to_body("2\n")).success
        client._connection.wait(lambda: client._connection.session.responses[number] is not None, 60)
        first = client._connection.session.responses[number]
        assert first and first.value == "from 2"


@pytest.mark.parametrize("number", [2, 15])
def test_a_signal_ends_it_and_its_programs(broker: Broker, tmp_path: Path, number: int) -> None:
    begun = tmp_path / "begun"
    command = *SHELL, f"echo $$ > {begun}; sleep 1000"
    with ExitStack() as stack, replying(broker, "wait", *command) as program:
        client = stack.enter_context(_request(broker, "wait"))
        pid = int(wait_for(lambda: begun.exists() and begun.read_text(), "the program"))
        program.process.send_signal(number)
        ended = program.finish()
        assert (ended.code, ended.err) == (0, "")
        wait_for(lambda: not is_alive(pid), "the end of the program")
        client._connection.wait(lambda: client._connection.session.responses[1] is not None, 60)
        gone = client._connection.session.responses[1]
        assert gone and gone.value == "Gone"


def _request(broker: Broker, route: str) -> Client:
    client = connect("ubre", at(broker))
    data, _ = client._connection.session.to_request(route, Body())
    client._connection.send(data)
    return client


def test_it_connects_again_when_the_broker_comes_back(tmp_path: Path) -> None:
    place = f"ipc://{tmp_path}/socket"
    with ExitStack() as stack:
        with Broker(f"--listen=http={place}", listen=()):
            program = stack.enter_context(Program(*POLYCAST, "reply", "--at", place, "echo", "cat"))
            assert program.stderr.readline().startswith(b"serving echo")
        assert b"; connecting again" in program.stderr.readline()
        with Broker(f"--listen=http={place}", listen=()):
            assert program.stderr.readline().startswith(b"serving echo")
            assert json.loads(polycast_here("request", "echo", "hi", "--at", place).out) == "hi"


def test_without_reconnect_the_end_of_the_broker_is_an_error() -> None:
    with Broker(listen=LISTEN) as broker, replying(broker, "--no-reconnect", "echo", "cat") as program:
        broker.begin_to_stop()
        ended = program.finish()
    assert ended.code == 1 and "the broker closed the connection" in ended.err


def test_wrong_usage(broker: Broker) -> None:
    for command, words in (
        (["route"], "COMMAND"),
        (["route", "no-such-program"], "cannot run no-such-program"),
        (["route", "--parallel", "2", "cat"], "options go before ROUTE"),
        (["--parallel", "0", "route", "cat"], "--parallel"),
    ):
        failed = polycast_here("reply", "--at", at(broker), *command)
        assert failed.code == 2 and words in failed.err, failed.err


def test_without_the_right_there_is_a_hint(tmp_path: Path) -> None:
    config = write_config(tmp_path, "loopback may publish >", networks=())
    with Broker(f"--config={config}", listen=LISTEN) as broker:
        failed = polycast_here("reply", "--at", at(broker), "math/double", "cat")
    assert failed.code == 1
    assert failed.err.splitlines()[-1].endswith("polycast token new NAME --serve math/double")
