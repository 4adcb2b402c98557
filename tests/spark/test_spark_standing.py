"""The service process with the standing pipelines and SQL, as `polycast up` starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kit.broker import Broker, clean_environment
from polycast.client import Client, Response, connect, to_body
from polycast.errors import StartError
from polycast.model import Message, StartPosition, parse_pattern
from polycast.server.access.tokens import add_token

STANDING = (sys.executable, "-m", "polycast.pipelines.service")
SPARK_SECONDS = 240.0
"""Spark starts slowly on a busy machine."""
RULES = (
    "loopback may publish+subscribe >",
    "loopback may subscribe polycast/traffic/>",
    "loopback may query >",
    "loopback may admin",
)
"""`traffic` needs a token to publish its results."""
SOON = (
    "--master=local[1]",
    f"--sql-seconds={SPARK_SECONDS}",
    "--set=archive.trigger_seconds=0.2",
    "--set=traffic.trigger_seconds=0.2",
)


@contextmanager
def standing(broker: Broker, data: Path, token: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    at = {name: f"tcp://127.0.0.1:{broker.ports[name]}" for name in ("hermod.pub", "http")}
    command = [*STANDING, f"--data={data}", f"--hermod={at['hermod.pub']}", f"--http={at['http']}", *SOON, *more]
    environment = clean_environment() | {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1", "POLYCAST_TOKEN": token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)


def sql(client: Client, query: str, **more: Any) -> Response:
    return client.request("spark/sql", to_body({"query": query, **more}), SPARK_SECONDS)


def test_standing_pipelines_and_sql(tmp_path: Path) -> None:
    patient = f"--set=ubre.request_seconds={SPARK_SECONDS}"
    token = add_token(tmp_path, "standing", ["standing may everything"])
    flags = (patient, f"--set=access.rules={','.join(RULES)}")
    with Broker(*flags, data=tmp_path, listen=("hermod.pub", "hermod.sub", "http")) as broker:
        with connect("hermod", f"tcp://127.0.0.1:{broker.ports['hermod.pub']}", publishing=True) as publisher:
            publisher.publish([Message("orders", b'{"n":%d}' % number) for number in range(3)])
            publisher.publish([Message("raw", b"\xff\x00"), Message("raw", b"x" * 100_000)])
        at = f"tcp://127.0.0.1:{broker.ports['http']}"
        with standing(broker, tmp_path, token) as process, connect("ubre", at) as client:
            wait_until_all_run(process)
            check_responses(client)
            check_refusals(client)
            assert "loopback queries 'DROP TABLE messages'" in broker.log()
            assert next_traffic(broker) == {"topic": "orders", "dialect": "hermod", "messages": 3}
            assert pipelines(client) == {"archive": "running", "traffic": "running"}
            assert list((tmp_path / "lake").glob("*/*/*.parquet"))
            check_environments(process.pid, token)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SPARK_SECONDS) == 0


def check_environments(pid: int, token: str) -> None:
    """Java and its workers get the token in a file only. `traffic` has published, so they have it."""
    started = descendants(pid)
    environments = [read_process(each, "environ") for each in started]
    assert any(b"POLYCAST_TOKEN_FILE=" in each for each in environments)
    assert not any(token.encode() in each for each in environments)
    lines = [read_process(each, "cmdline") for each in started]
    assert any(b"pyspark" in each and b"daemon" in each for each in lines)
    assert not any(token.encode() in each for each in lines)


def read_process(pid: int, name: str) -> bytes:
    """Empty if the process has ended: Spark stops idle workers at any time."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, rest = stat.read_text().split(" ", 1)
            parents[int(number)] = int(rest.rpartition(")")[2].split()[1])
    found, new = set(), {pid}
    while new := {each for each, parent in parents.items() if parent in new}:
        found |= new
    return sorted(found)


def wait_until_all_run(process: subprocess.Popen[str]) -> None:
    """A pipeline may fail once: on a busy machine Spark does not always wait for its workers."""
    missing = {"running", "archive running", "traffic running"}
    assert process.stdout
    while missing and (line := process.stdout.readline().strip()):
        missing.discard(line)
    assert not missing


def check_responses(client: Client) -> None:
    counted = sql(client, "SELECT topic, count(*) AS n FROM messages GROUP BY topic ORDER BY n DESC")
    assert counted.value == {"columns": ["topic", "n"], "rows": [["orders", 3], ["raw", 2]], "more": False}
    some = sql(client, "SELECT payload, payload FROM `orders` ORDER BY offset", limit=2)
    assert some.value == {"columns": ["payload"] * 2, "rows": [['{"n":0}'] * 2, ['{"n":1}'] * 2], "more": True}
    raw = sql(client, "SELECT payload, offset FROM `raw` ORDER BY offset").value["rows"]
    assert raw[0][0] == {"$base64": "/wA="}
    assert len(raw[1][0]) == 32 * 1024  # longer cells are cut


def check_refusals(client: Client) -> None:
    wrong = sql(client, "SELECT offst FROM messages")
    assert not wrong.success
    first, query, marks = wrong.value.splitlines()
    assert "offst" in first and (query, marks) == ("  SELECT offst FROM messages", "         ^^^^^")
    for query, words in (
        ("DROP TABLE messages", "a query cannot change data"),
        ("SELECT TRANSFORM(1) USING 'id -un' AS (x STRING)", "ScriptTransformation is not allowed"),
        ("SELECT * FROM text.`/etc/hostname`", "a query reads views only"),
        ("SELECT java_method('java.lang.System', 'getProperty', 'user.home')", "it calls Java"),
        ("EXPLAIN SELECT * FROM messages", "EXPLAIN reveals file paths"),
    ):
        refused = sql(client, query)
        assert not refused.success and words in refused.value, refused
    for body in ({"query": "SELECT 1", "limit": 1001}, {"query": 1}, {}):
        bad = client.request("spark/sql", to_body(body))
        assert not bad.success and bad.value.startswith("BadRequest")


def next_traffic(broker: Broker) -> dict[str, Any]:
    """The next traffic report about the orders."""
    with connect("hermod", f"tcp://127.0.0.1:{broker.ports['hermod.sub']}") as client:
        client.subscribe([parse_pattern("polycast/traffic/orders")], StartPosition())
        for messages in client.messages():
            found = json.loads(messages[0].payload)
            return {key: found[key] for key in ("topic", "dialect", "messages")}
    raise AssertionError("the connection ended")


def pipelines(client: Client) -> dict[str, str]:
    """States by name, once each pipeline has reported a batch."""
    end = time.monotonic() + SPARK_SECONDS
    while time.monotonic() < end:
        rows = client.request("polycast/pipelines").value["pipelines"]
        if len(rows) == 2 and all(row["batch"] is not None for row in rows):
            return {row["query"]: row["state"] for row in rows}
    raise AssertionError("no pipeline has reported its position")


ENDLESS = "exists(array(array_repeat(0, 1000)), a -> exists(a, x -> exists(a, y -> exists(a, z -> exists(a, w -> x + y + z + w > 0)))))"  # noqa: E501
"""One value that takes years. Spark does not check for cancellation before it is computed."""


def test_a_query_that_cannot_be_cancelled_ends_spark(tmp_path: Path) -> None:
    """Otherwise it would keep a core for ever, and a few of them would stop all pipelines."""
    token = add_token(tmp_path, "standing", ["standing may everything"])
    rules = f"--set=access.rules={','.join(RULES)}"
    limits = ("--sql-seconds=10", "--sql-stop-seconds=2")
    with Broker(rules, data=tmp_path, listen=("hermod.pub", "http")) as broker:
        at = f"tcp://127.0.0.1:{broker.ports['http']}"
        with standing(broker, tmp_path, token, *limits) as process, connect("ubre", at) as client:
            wait_until_all_run(process)
            started = {pid: start for pid in descendants(process.pid) if (start := began(pid))}
            end = time.monotonic() + SPARK_SECONDS
            while process.poll() is None and time.monotonic() < end:  # on a busy machine the task may start late
                assert not sql(client, f"SELECT {ENDLESS}").success
            assert process.wait(SPARK_SECONDS) == StartError("").exit_code
            wait_until_gone(started)


def began(pid: int) -> list[str]:
    """When a process began; empty if it has ended. The system uses numbers of processes again."""
    return read_process(pid, "stat").decode().rpartition(")")[2].split(" ")[20:21]


def wait_until_gone(processes: dict[int, list[str]]) -> None:
    end = time.monotonic() + SPARK_SECONDS
    while any(began(pid) == at for pid, at in processes.items()):
        assert time.monotonic() < end
        time.sleep(0.1)
