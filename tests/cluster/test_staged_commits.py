"""Stage and commit in a cluster: rows are staged at any node, committed at any other, and published once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from cluster.trio import NAMES, PATIENCE, Trio
from kit import hermod
from kit.broker import Broker
from kit.staged import Row, to_frame
from kit.subscribers import send_request

ROWS = 100_000


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with Trio(tmp_path_factory.mktemp("trio")) as running:
        yield running


def to_rows(topic: str, count: int) -> list[Row]:
    return [(f"{topic}.{number % 3}", b"%040d" % number) for number in range(count)]


def send_commands(node: Broker, *commands: bytes) -> list[object]:
    """The number of rows that the node acknowledges, or the code of its error, for each command."""
    with node.connect("hermod.pub") as peer:
        peer.socket.settimeout(PATIENCE)
        found = []
        for command in commands:
            peer.send(command)
            reply = json.loads(peer.read_until(b"\n"))
            found.append(reply.get("code", reply.get("count")))
        return found


def stage(node: Broker, batch: str, name: str, rows: Sequence[Row]) -> None:
    assert send_commands(node, hermod.stage(batch, name, to_frame(rows), count=0)) == [len(rows)]


def commit(node: Broker, batch: str, *names: str) -> object:
    [found] = send_commands(node, hermod.commit(batch, *names))
    return found


def check(trio: Trio, topic: str, rows: Sequence[Row]) -> None:
    """Every node has these rows of the topic, once, and in the same place."""
    applied = trio.catch_up()[0]["offset"]
    tables = trio.tables(applied)
    first, *others = tables.values()
    for other in others:
        assert other.equals(first)
    assert "differs" not in send_request(next(iter(trio.nodes.values())), "polycast/cluster/verify")
    found = list(zip(first["topic"].to_pylist(), first["payload"].to_pylist(), strict=True))
    assert [row for row in found if row[0].startswith(f"{topic}.")] == list(rows)


def count_groups(trio: Trio, name: str, topic: str) -> int:
    """Record batches of the node's log that have rows of this topic."""
    count = 0
    for path in (trio.folder / name / "log").glob("*.arrows"):
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            count += sum(any(t.startswith(f"{topic}.") for t in b["topic"].unique().to_pylist()) for b in stream)
    return count


def test_a_large_commit_of_stages_of_two_nodes_is_one_group_everywhere(trio: Trio) -> None:
    rows = to_rows("large", ROWS)
    stage(trio.nodes["a"], "large", "1", rows[: ROWS // 2])
    stage(trio.nodes["b"], "large", "2", rows[ROWS // 2 :])
    assert [commit(trio.nodes[name], "large", "1", "2") for name in "cab"] == [ROWS] * 3
    check(trio, "large", rows)
    assert [count_groups(trio, name, "large") for name in NAMES] == [1, 1, 1]


def test_the_node_that_staged_dies_before_the_commit(trio: Trio) -> None:
    rows = to_rows("orphan", 30_000)
    stage(trio.nodes["a"], "orphan", "1", rows)
    trio.kill("a")
    assert commit(trio.nodes["b"], "orphan", "1") == len(rows)
    trio.start("a")
    assert commit(trio.nodes["a"], "orphan", "1") == len(rows)
    check(trio, "orphan", rows)


def test_all_nodes_die_before_the_commit(trio: Trio) -> None:
    rows = to_rows("all", 30_000)
    stage(trio.nodes["b"], "all", "1", rows)
    assert commit(trio.nodes["c"], "small", "none") == 404
    stage(trio.nodes["c"], "small", "1", to_rows("small", 9))
    assert commit(trio.nodes["c"], "small", "1") == 9  # a group: the restart goes on behind it
    trio.catch_up()
    for name in NAMES:
        trio.kill(name)
    for name in NAMES:
        trio.start(name)
    assert commit(trio.nodes["c"], "all", "1") == len(rows)
    assert commit(trio.nodes["a"], "small", "1") == 9
    check(trio, "all", rows)
    check(trio, "small", to_rows("small", 9))


def test_a_node_dies_while_it_sends_the_parts_of_a_frame(trio: Trio) -> None:
    rows = to_rows("torn", 60_000)
    with trio.nodes["b"].connect("hermod.pub") as peer:
        peer.send(hermod.stage("torn", "1", to_frame(rows), count=0))
        trio.kill("b")
    check(trio, "torn", [])
    stage(trio.nodes["c"], "torn", "1", rows)
    trio.start("b")
    assert commit(trio.nodes["b"], "torn", "1") == len(rows)
    check(trio, "torn", rows)


def test_a_stage_that_is_aborted_or_begun_anew_at_another_node(trio: Trio) -> None:
    stage(trio.nodes["a"], "changed", "1", to_rows("changed", 5))
    stage(trio.nodes["b"], "changed", "2", to_rows("changed", 5))
    assert send_commands(trio.nodes["c"], hermod.abort("changed", "1")) != [404]
    stage(trio.nodes["c"], "changed", "2", to_rows("changed", 7))
    trio.catch_up()
    assert commit(trio.nodes["a"], "changed", "1", "2") == 404
    assert commit(trio.nodes["a"], "changed", "2") == 7
    check(trio, "changed", to_rows("changed", 7))
