"""Commits with too many frames: refused by the node that would propose them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from cluster.place import Place, send, wait_level
from cluster.small_commits import LIMIT
from kit.broker import Broker
from kit.subscribers import send_request
from kit.wire import wait_for
from polycast.broker import Proposal
from polycast.client.staging import Stager, to_frames
from polycast.cluster.messages import COMMIT_MESSAGES_AT_MOST, NUMBERS_END, cut_body, write_body
from polycast.errors import RefusedError
from polycast.log.write.bulk import STAGED_SCHEMA, to_bulk
from polycast.model import BatchKey

PAYLOAD_BYTES = 220_000
"""Five of them are too large for a burst, and ten fit into the stream."""


@pytest.fixture
def nodes(place: Place) -> Iterator[tuple[Broker, Broker]]:
    with (
        place.node("a", module="cluster.small_commits") as first,
        place.node("b", module="cluster.small_commits") as second,
    ):
        yield first, second


def to_frame(number: int, rows: int = 1) -> tuple[int, memoryview]:
    payloads = [b"%d.%d " % (number, row) * (PAYLOAD_BYTES // 4) for row in range(rows)]
    [frame] = to_frames([pa.RecordBatch.from_pydict({"topic": ["t"] * rows, "payload": payloads})])
    return frame


def connect(node: Broker) -> Stager:
    return Stager(f"tcp://127.0.0.1:{node.ports['hermod.pub']}", "batch")


def test_a_commit_with_too_many_frames_is_refused_before_it_is_proposed(
    place: Place, nodes: tuple[Broker, Broker]
) -> None:
    count = LIMIT + 1
    with connect(nodes[0]) as stager:
        assert stager.stage_frames("s", map(to_frame, range(count))) == count
    proposed = wait_level(nodes[0], 2)["stream"]["last"]
    for node in nodes:
        with connect(node) as stager, pytest.raises(RefusedError, match="stage larger frames") as refused:
            stager.commit(["s"], count)
        assert refused.value.code == 422
        assert f"{count:,} messages of the stream, the limit is {LIMIT:,}" in str(refused.value)
    assert wait_level(nodes[0], 2)["stream"]["last"] == proposed
    with connect(nodes[0]) as stager:
        assert stager.stage_frames("s", [*map(to_frame, range(LIMIT - 1)), to_frame(LIMIT, 2)]) == count
    with connect(nodes[1]) as stager:
        assert stager.commit(["s"], count) == count
    send(nodes[0], "t", b"last")
    wait_level(nodes[0], 2)
    for name in ("a", "b"):
        wait_for(lambda name=name: len(place.table(name)) == count + 1, "all rows")  # type: ignore[misc]
    assert place.table("a").equals(place.table("b"))
    assert "differs" not in send_request(nodes[0], "polycast/cluster/verify")


@pytest.mark.parametrize("parts", [1, 7, 16])
def test_the_commit_with_the_most_messages_is_one_message(parts: int) -> None:
    """With the largest stream sequences."""
    first = NUMBERS_END - COMMIT_MESSAGES_AT_MOST
    frames = [list(range(each, min(each + parts, NUMBERS_END))) for each in range(first, NUMBERS_END, parts)]
    row = pa.RecordBatch.from_pydict({"topic": ["t"], "payload": [b"1"], "format": ["text"]}, STAGED_SCHEMA)
    batch = BatchKey("o" * 10_000, "i" * 256)
    body = write_body([Proposal((), "s" * 1_000, 2**62, batch, 2**62, to_bulk("hermod", row, frames))])
    assert sum(map(len, frames)) == COMMIT_MESSAGES_AT_MOST
    assert len(cut_body(body)) == 1
