"""Sealing at the nodes of a cluster: each seals its own segments, the rows are equal, and reads go from sealed to
hot segments and on to live messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.place import Place, send, wait_level
from cluster.trio import read_table
from kit.broker import Broker
from kit.replay import Delivered, read_messages, subscribe_placed, total
from kit.subscribers import send_request
from kit.wire import wait_for

PIECES, PIECE = 20, 50
SEGMENT_BYTES = {"a": 65_536, "b": 100_000}
"""Segments begin at other offsets at each node."""


class SealedNodes:
    """Two nodes with sealed and hot segments. The payload of each message is its number, which is its offset."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.nodes: dict[str, Broker] = {}
        self.count = 0

    def __enter__(self) -> SealedNodes:
        with ExitStack() as undo:
            undo.callback(self.end)
            self._fill()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for node in self.nodes.values():
            node.__exit__(None, None, None)

    def _fill(self) -> None:
        for name in SEGMENT_BYTES:
            self.start(name)
        for number in range(PIECES):
            self.send("ab"[number % 2], PIECE)
        for node in self.nodes.values():
            wait_for(lambda node=node: total(node, "log_segments_sealed_total") > 2, "sealed segments")  # type: ignore[misc]
        while not all(self._has_hot_rows(name) for name in self.nodes):
            self.send("a", 1)

    def start(self, name: str) -> None:
        flag = f"--set=log.segment_bytes={SEGMENT_BYTES[name]}"
        self.nodes[name] = self._place.node(name, flag).__enter__()

    def kill(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.kill()
        node.__exit__(None, None, None)

    def send(self, name: str, count: int) -> None:
        """At this node. Returns when all nodes have it."""
        send(self.nodes[name], "t", *map(to_payload, range(self.count, self.count + count)))
        self.count += count
        wait_level(self.nodes[name], len(self.nodes))

    def folder(self, name: str) -> Path:
        return self._place.folder / name / "log"

    def table(self, name: str) -> pa.Table:
        """All rows. Waits until they are on disk, and while a file is replaced by its sealed form."""

        def whole() -> pa.Table | None:
            try:
                table = read_table(self.folder(name))
            except FileNotFoundError:
                return None
            return table if table["offset"].to_pylist() == list(range(self.count)) else None

        return wait_for(whole, f"all rows of {name}")

    def sealed(self, name: str) -> pa.Table:
        tables = [pq.read_table(path).replace_schema_metadata() for path in self.folder(name).glob("*.parquet")]
        return pa.concat_tables(tables).sort_by("offset")

    def _has_hot_rows(self, name: str) -> bool:
        """Whether the segment that is written now has rows."""
        self.table(name)
        with pa.OSFile(str(max(self.folder(name).glob("*.arrows")))) as file, pa.ipc.open_stream(file) as stream:
            return any(batch.num_rows for batch in stream)


def to_payload(number: int) -> bytes:
    return (b"%d" % number).ljust(600, b".")


@pytest.fixture
def sealed(place: Place) -> Iterator[SealedNodes]:
    with SealedNodes(place) as running:
        yield running


def check_tables(sealed: SealedNodes) -> None:
    first, second = sealed.table("a"), sealed.table("b")
    assert first.equals(second)
    assert first["payload"].to_pylist() == list(map(to_payload, range(sealed.count)))
    assert first["sequence"].to_pylist() == list(range(sealed.count))
    found = send_request(sealed.nodes["a"], "polycast/cluster/verify")
    assert found == {"nodes": ["a", "b"], "first": 0, "next": sealed.count}


def test_each_node_seals_its_own_segments_and_the_rows_are_equal(sealed: SealedNodes) -> None:
    check_tables(sealed)
    firsts = [{path.name for path in sealed.folder(name).glob("*.parquet")} for name in sealed.nodes]
    assert firsts[0] != firsts[1]
    for name in sealed.nodes:
        rows = sealed.sealed(name)
        assert 0 < rows.num_rows < sealed.count
        assert rows.equals(sealed.table("a").slice(0, rows.num_rows))


@pytest.mark.parametrize("since", [0, 333, -1])
def test_a_replay_goes_from_sealed_to_hot_segments_and_on_to_live_messages(
    sealed: SealedNodes, since: int
) -> None:
    first = since % sealed.count
    begun = sealed.count
    peers = [subscribe_placed(node, "t", **{"from": f"@{first}"})[0] for node in sealed.nodes.values()]
    received = [read_messages(peer, begun - first) for peer in peers]
    sealed.send("a", 3)
    sealed.send("b", 3)
    for peer, found in zip(peers, received, strict=True):
        with peer:
            found += read_messages(peer, sealed.count - begun)
            assert peer.read == b""
    rows = sealed.table("a").slice(first)
    micros = rows["time"].cast(pa.int64()).to_pylist()
    assert received[0] == received[1]
    assert received[0] == [
        Delivered("t", number, to_payload(number), number, time)
        for number, time in zip(range(first, sealed.count), micros, strict=True)
    ]


def test_a_topic_sequence_is_found_in_a_sealed_segment_of_either_node(sealed: SealedNodes) -> None:
    """A subscriber reads some messages at one node, and goes on at the other."""
    at, found = 0, []
    while at < sealed.count:
        for node in sealed.nodes.values():
            count = min(170, sealed.count - at)
            peer, _ = subscribe_placed(node, "t", **{"from": {"topics": {"t": at}}})
            with peer:
                found += read_messages(peer, count) if count else []
            at += count
    assert [each.payload for each in found] == list(map(to_payload, range(sealed.count)))


def test_history_reads_across_sealed_and_hot_segments(sealed: SealedNodes) -> None:
    hot = sealed.count - min(sealed.sealed(name).num_rows for name in sealed.nodes)
    for requested, numbers in (
        ({"limit": hot + 10}, range(sealed.count - hot - 10, sealed.count)),
        ({"limit": 10_000, "from": "earliest"}, range(sealed.count)),
        ({"limit": 10_000, "since": sealed.count - hot - 5}, range(sealed.count - hot - 5, sealed.count)),
    ):
        here, there = (history(node, **requested) for node in sealed.nodes.values())
        assert here == there
        assert [row["sequence"] for row in here] == list(numbers)
        assert [row["body"] for row in here] == [to_payload(number).decode() for number in numbers]


def history(node: Broker, **requested: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = send_request(node, "polycast/history", {"pattern": "t", **requested})
    return found


def test_a_killed_node_seals_what_it_missed(sealed: SealedNodes) -> None:
    sealed.kill("b")
    before = sealed.count
    for _ in range(PIECES):
        sealed.send("a", PIECE)
    sealed.start("b")
    sealed.send("a", 1)  # a full segment ends when the next message is written
    wait_for(lambda: sealed.sealed("b").num_rows > before, "sealed rows that the node missed")
    wait_level(sealed.nodes["a"], len(sealed.nodes))
    check_tables(sealed)
