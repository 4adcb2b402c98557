"""Commits that are repeated at another node at once, and commits at a node without servers."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.trio import PATIENCE, read_table
from kit.broker import Broker
from kit.nats import Servers
from kit.wire import wait_for
from polycast.client.staging import Stager
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
