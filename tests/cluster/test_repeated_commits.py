"""Commits at another node at once, repeated ones, and commits at a node without servers."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.place import wait_level
from cluster.trio import PATIENCE, read_table
from kit.broker import Broker
from kit.nats import Servers
from kit.subscribers import send_request
from kit.wire import wait_for
from polycast.client.staging import Stager, to_frames
from polycast.dialects.client_session import PendingAcks
from polycast.errors import RefusedError

BATCHES = 40
ROWS = 3


def connect(node: Broker, batch_id: str) -> Stager:
    return Stager(f"tcp://127.0.0.1:{node.ports['hermod.pub']}", batch_id)


def to_rows(number: int) -> pa.RecordBatch:
    payloads = [b"%d.%d" % (number, row) for row in range(ROWS)]
    return pa.RecordBatch.from_pydict({"topic": ["t"] * ROWS, "payload": payloads})


def test_a_commit_repeated_at_a_node_that_is_behind_publishes_nothing(
    nodes: tuple[Broker, Broker], tmp_path: Path
) -> None:
    """The node is stopped meanwhile. When it goes on, it may read the commit before it reads the stream."""
    for number in range(BATCHES):
        with connect(nodes[0], f"b{number}") as here, connect(nodes[1], f"b{number}") as there:
            nodes[1].process.send_signal(signal.SIGSTOP)
            try:
                here.stage("s", [to_rows(number)])
                assert here.commit(["s"], ROWS) == ROWS
                acks = PendingAcks()
                there.send(there.session.to_commit(f"b{number}", ["s"], ROWS, acks))
            finally:
                nodes[1].process.send_signal(signal.SIGCONT)
            there.wait(lambda acks=acks: not acks.pending, PATIENCE)  # type: ignore[misc]
            assert (acks.error, acks.accepted) == (None, ROWS)
    for name in ("a", "b"):
        wait_for(lambda name=name: len(read_table(tmp_path / name / "log")) == BATCHES * ROWS, "all rows")  # type: ignore[misc]


def test_a_commit_at_a_node_without_servers_is_refused_and_can_be_repeated(
    nodes: tuple[Broker, Broker], servers: Servers
) -> None:
    """The stage is not known at the second node: it cannot say whether there is one."""
    servers.kill(0)
    with connect(nodes[1], "b") as stager, pytest.raises(RefusedError, match="servers of the cluster") as refused:
        stager.commit(["s"], ROWS)
    assert refused.value.code == 500
    servers.start(0)
    servers.wait()
    with connect(nodes[0], "b") as stager:
        assert stager.stage("s", [to_rows(0)]) == ROWS

    def commit() -> bool:
        try:
            with connect(nodes[1], "b") as stager:
                return stager.commit(["s"], ROWS) == ROWS
        except RefusedError as error:
            assert error.code == 500
            return False

    wait_for(commit, "the commit", PATIENCE)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("counted", [True, False])
def test_a_commit_at_a_node_that_is_behind_has_the_rows_that_were_staged_last(
    nodes: tuple[Broker, Broker], tmp_path: Path, before: int, counted: bool
) -> None:
    """A second frame adds a row to the stage, or begins it anew. The node may read the commit before it reads the
    stream."""
    expected = []
    for number in range(BATCHES // 4):
        first, second = b"%d first" % number, b"%d second" % number
        expected += [first, second][1 - before :]
        with connect(nodes[0], f"b{number}") as here, connect(nodes[1], f"b{number}") as there:
            send_frame(here, number, 0, first)
            wait_level(nodes[1], 2)
            nodes[1].process.send_signal(signal.SIGSTOP)
            try:
                send_frame(here, number, before, second)
                acks = PendingAcks()
                rows = before + 1 if counted else None
                there.send(there.session.to_commit(f"b{number}", ["s"], rows, acks))
            finally:
                nodes[1].process.send_signal(signal.SIGCONT)
            there.wait(lambda acks=acks: not acks.pending, PATIENCE)  # type: ignore[misc]
            assert (acks.error, acks.accepted) == (None, before + 1)
    wait_for(lambda: len(read_table(tmp_path / "b" / "log")) == len(expected), "all rows")
    assert read_table(tmp_path / "b" / "log")["payload"].to_pylist() == expected


def send_frame(stager: Stager, number: int, before: int, payload: bytes) -> None:
    acks = PendingAcks()
    [(_, frame)] = to_frames([pa.RecordBatch.from_pydict({"topic": ["t"], "payload": [payload]})])
    stager.send(stager.session.to_stage(f"b{number}", "s", before, frame, acks))
    stager.wait(lambda: not acks.pending, PATIENCE)
    assert acks.error is None


def test_a_commit_of_known_stages_waits_for_the_servers(nodes: tuple[Broker, Broker], servers: Servers) -> None:
    with connect(nodes[0], "b") as stager:
        assert stager.stage("s", [to_rows(0)]) == ROWS
        servers.kill(0)
        acks = PendingAcks()
        stager.send(stager.session.to_commit("b", ["s"], ROWS, acks))
        wait_for(lambda: "error" in send_request(nodes[0], "polycast/cluster")["stream"], "a node without servers")
        servers.start(0)
        stager.wait(lambda: not acks.pending, PATIENCE)
        assert (acks.error, acks.accepted) == (None, ROWS)
