"""What must hold after all faults: tables of all nodes, acknowledgements and deliveries are compared."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import pairwise

import pyarrow as pa

from chaos.fleet import Fleet
from chaos.load import Listening, Resuming, Roaming, RoamingIdempotent, Seen
from cluster.trio import read_table
from crash.live_subscriber import digest
from crash.log_checks import COLUMNS, Row


def check_tables(fleet: Fleet) -> list[Row]:
    """Equal at all nodes, without gaps; times never go back."""
    fleet.catch_up()
    verified = fleet.request("polycast/cluster/verify")
    assert verified and len(verified["nodes"]) == len(fleet.nodes) and "differs" not in verified, verified
    tables = {name: read_table(node.folder / "log") for name, node in fleet.nodes.items()}
    first = next(iter(tables.values()))
    for name, table in tables.items():
        assert table.equals(first), f"{name}: {table.num_rows:,} rows, {first.num_rows:,} at the first node"
    return _check_rows(first)


def _check_rows(table: pa.Table) -> list[Row]:
    rows = [Row(*row) for row in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)]
    assert [row.offset for row in rows] == list(range(len(rows)))
    reached: Counter[str] = Counter()
    for row in rows:
        assert row.sequence == reached[row.topic], row
        reached[row.topic] += 1
    times = table["time"].to_pylist()
    assert all(a <= b for a, b in pairwise(times))
    return rows


def check_publisher(rows: list[Row], publisher: Roaming) -> int:
    """What is acknowledged is there, unchanged, once, in order. Returns how many others are not there."""
    assert not publisher.wrong, f"{publisher.name}: {publisher.wrong}"
    mark = publisher.name.encode() + b" "
    own = [row for row in rows if row.payload.startswith(mark)]
    numbers = [int(row.payload.split(b" ", 2)[1]) for row in own]
    for row, number in zip(own, numbers, strict=True):
        assert publisher.sent[number] == (row.topic, row.payload), f"{publisher.name}: {number} is another"
    doubled = [number for number, times in Counter(numbers).items() if times > 1]
    assert not doubled, f"{publisher.name}: {len(doubled):,} doubled, from {min(doubled):,} on"
    lost = publisher.acked - set(numbers)
    assert not lost, f"{publisher.name}: lost {len(lost):,} that were acknowledged, from {min(lost):,} on"
    refused = publisher.refused & set(numbers)
    assert not refused, f"{publisher.name}: {len(refused):,} were refused, and are there"
    _check_order(numbers, publisher)
    if isinstance(publisher, RoamingIdempotent):
        for unit in publisher.units:
            there = len(set(unit.numbers).intersection(numbers))
            assert there in (0, len(unit.numbers)), f"{unit.batch_id}: {there} of {len(unit.numbers)} messages"
    return len(publisher.sent) - len(numbers)


def _check_order(numbers: list[int], publisher: Roaming) -> None:
    """Of all that was acknowledged, and of each connection. A node may store what a lost connection had sent
    after what the publisher sent to another node since."""
    acked = [number for number in numbers if number in publisher.acked]
    assert all(a < b for a, b in pairwise(acked)), f"{publisher.name}: moved"
    last: dict[int, int] = {}
    for number in numbers:
        life = bisect_right(publisher.lives, number)
        assert number > last.get(life, -1), f"{publisher.name}: {number:,} moved within a connection"
        last[life] = number


def check_resuming(rows: list[Row], subscriber: Resuming) -> None:
    assert not subscriber.wrong, subscriber.wrong
    expected = [Seen(row.offset, row.topic, row.sequence, digest(row.payload)) for row in rows]
    for seen, row in zip(subscriber.seen, expected, strict=False):
        assert seen == row, f"got {seen}, expected {row}"
    assert len(subscriber.seen) == len(expected)


def count_misses(rows: list[Row], subscriber: Listening) -> tuple[int, int]:
    """Messages that it missed, and those that it got again."""
    durable = Counter((row.topic, digest(row.payload)) for row in rows)
    seen = Counter(subscriber.seen)
    assert seen.keys() <= durable.keys(), "delivered, and not stored"
    return sum((durable - seen).values()), sum((seen - durable).values())
