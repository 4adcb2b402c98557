"""The supervisor with real processes; Spark is replaced by a stub."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.broker import ALL
from kit.wire import GUARD_SECONDS
from polycast.client import connect_async
from polycast.model import parse_pattern
from polycast.up.lifecycle import PartState
from polycast.up.parts import Part, UpOptions, broker_part, demo_arguments
from polycast.up.supervisor import Supervisor

TESTS = str(Path(__file__).parent.parent)


@pytest.fixture(autouse=True)
def children_find_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH")])))


class Ledger:
    """All reports."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.states: list[tuple[str, PartState]] = []
        self.console = ""

    def broker_ready(self, console: str) -> None:
        self.console = console

    def state_changed(self, part: Part) -> None:
        self.states.append((part.name, part.lifecycle.state))

    def stdout_line(self, part: Part, line: str) -> None:
        self.lines.append(f"{part.name} {line}")

    def stderr_line(self, part: Part, line: str) -> None:
        self.lines.append(f"{part.name}: {line}")

    def of(self, name: str) -> list[PartState]:
        return [state for who, state in self.states if who == name]


def broker() -> Part:
    listen = {name: ["tcp://127.0.0.1:0"] for name in (*ALL, "nanomsg.pub", "nanomsg.sub")}
    return broker_part(UpOptions(["--set=log.enabled=false", "--set=events.enabled=false"], listen, ""))


def stand_in(kind: str) -> Part:
    return Part("spark", "up.stand_in", lambda listening: [kind])


@asynccontextmanager
async def supervising(*parts: Part) -> AsyncIterator[tuple[Supervisor, Ledger]]:
    """Stops the supervisor at the end."""
    ledger = Ledger()
    supervisor = Supervisor(parts, ledger)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, ledger
    finally:
        if not running.done():
            supervisor.stop()
        await running


async def until(condition: Callable[[], object], what: str) -> None:
    end = asyncio.get_running_loop().time() + GUARD_SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"timed out waiting for {what}"
        await asyncio.sleep(0.005)


def pid_of(supervisor: Supervisor, part: Part) -> int:
    child = supervisor.child(part)
    assert child and child.pid
    return child.pid


def is_gone(pid: int) -> bool:
    """Also before its exit code is read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_each_killed_part_is_restarted() -> None:
    async def scene() -> None:
        parts = [broker(), stand_in("steady"), Part("demo", "polycast.demo", demo_arguments)]
        async with supervising(*parts) as (supervisor, ledger):

            def runs() -> bool:
                return all(part.lifecycle.state is PartState.RUNNING for part in parts)

            await until(runs, "all parts to run")
            assert ledger.console.startswith("http://127.0.0.1:")
            places = supervisor.listening
            before = {part.name: pid_of(supervisor, part) for part in parts}
            for part in parts:
                os.kill(before[part.name], signal.SIGKILL)
            await until(lambda: all(part.lifecycle.restarts == 1 for part in parts) and runs(), "all to come back")
            assert all(pid_of(supervisor, part) != before[part.name] for part in parts)
            assert supervisor.listening == places  # clients reconnect to the same addresses
            await receive_from_demo(str(places["simplest"][0]))
            assert ledger.of("broker")[:4] == [
                PartState.STARTING,
                PartState.RUNNING,
                PartState.RESTING,
                PartState.STARTING,
            ]
        assert ledger.of("broker")[-1] is ledger.of("spark")[-1] is ledger.of("demo")[-1] is PartState.STOPPED

    asyncio.run(scene())


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_only_parts_that_connect_inherit_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYCAST_TOKEN", "a-token-of-the-test")
    monkeypatch.setenv("POLYCAST_AT", "tcp://here:1?token=a-token-of-the-test")

    async def scene() -> None:
        parts = [broker(), stand_in("steady")]
        async with supervising(*parts) as (supervisor, _):
            await until(
                lambda: all(part.lifecycle.state is PartState.RUNNING for part in parts), "all parts to run"
            )
            ours, theirs = (environment_of(pid_of(supervisor, part)) for part in parts)
            assert b"PATH=" in ours and b"a-token-of-the-test" not in ours
            assert b"POLYCAST_TOKEN=a-token-of-the-test" in theirs

    asyncio.run(scene())


async def receive_from_demo(address: str) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        client = await connect_async("simplest", address)
        await client.subscribe([parse_pattern("sensors.>")])
        async for messages in client.messages():
            assert messages[0].topic.startswith("sensors.")
            break
        await client.close()


def test_the_broker_does_without_spark() -> None:
    async def scene() -> None:
        spark = stand_in("not-here")
        async with supervising(broker(), spark) as (supervisor, ledger):
            await until(lambda: spark.lifecycle.state is PartState.OFF, "Spark to be given up")
            assert spark.lifecycle.reason == "there is no such thing here\nhint: install it"
            assert supervisor.broker.lifecycle.state is PartState.RUNNING
            assert not any("no such thing" in line for line in ledger.lines)  # reported once, as the reason
        assert ledger.of("spark") == [PartState.STARTING, PartState.OFF]

    asyncio.run(scene())


def test_the_restart_delay_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polycast.pipelines.service.backoff.FIRST_SECONDS", 0.01)

    async def scene() -> None:
        spark = stand_in("brief")
        async with supervising(broker(), spark):
            await until(lambda: spark.lifecycle.restarts == 2, "the second restart")
        assert spark.lifecycle.state is PartState.STOPPED

    asyncio.run(scene())


def test_a_part_that_does_not_stop_is_killed_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polycast.up.supervisor.OTHERS_SECONDS", 0.2)

    async def scene() -> list[int]:
        spark = stand_in("stubborn")
        async with supervising(broker(), spark) as (supervisor, ledger):
            await until(lambda: spark.lifecycle.state is PartState.RUNNING, "Spark to run")
            [line] = [line for line in ledger.lines if "started" in line]
            return [pid_of(supervisor, spark), int(line.split()[-1])]

    for pid in asyncio.run(scene()):
        assert is_gone(pid)


def test_a_second_signal_kills_all_parts() -> None:
    now = iter(range(100))

    async def scene() -> None:
        spark = stand_in("stubborn")
        ledger = Ledger()
        supervisor = Supervisor([broker(), spark], ledger, clock=lambda: float(next(now)))
        running = asyncio.create_task(supervisor.run())
        await until(lambda: spark.lifecycle.state is PartState.RUNNING, "Spark to run")
        supervisor.stop()
        supervisor.stop()
        await running
        assert set(ledger.states[-2:]) == {("spark", PartState.STOPPED), ("broker", PartState.STOPPED)}

    asyncio.run(scene())
