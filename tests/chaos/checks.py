"""What must hold after all faults: tables of all nodes, acknowledgements and deliveries are compared."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from chaos.committing import Committing
from chaos.fleet import Fleet
from chaos.load import Listening, Resuming, Roaming, RoamingIdempotent, Seen
from chaos.spark_writer import SPARK_TOPIC, SparkWriter
from cluster.trio import read_table
from crash.live_subscriber import digest
from crash.log_checks import COLUMNS, Row


@dataclass
class Findings:
    """What is wrong. A run without any has no problems."""

    lost: int = 0
    doubled: int = 0
    moved: int = 0
    problems: list[str] = field(default_factory=list)

    def check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


def check_tables(fleet: Fleet, findings: Findings) -> list[Row]:
    """Equal at all nodes, without gaps; times never go back."""
    fleet.catch_up()
    verified = fleet.request("polycast/cluster/verify")
    same = verified and len(verified["nodes"]) == len(fleet.nodes) and "differs" not in verified
    findings.check(bool(same), f"verify: {verified}")
    tables = {name: read_table(node.folder / "log") for name, node in fleet.nodes.items()}
    first = next(iter(tables.values()))
    for name, table in tables.items():
        findings.check(
            table.equals(first), f"{name}: {table.num_rows:,} rows, {first.num_rows:,} at the first node"
        )
    return _check_rows(first, findings)


def _check_rows(table: pa.Table, findings: Findings) -> list[Row]:
    rows = [Row(*row) for row in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)]
    findings.check([row.offset for row in rows] == list(range(len(rows))), "offsets have gaps")
    reached: Counter[str] = Counter()
    for row in rows:
        findings.check(row.sequence == reached[row.topic], f"the sequence of {row} is not {reached[row.topic]:,}")
        reached[row.topic] += 1
    times = table["time"].to_pylist()
    findings.check(all(a <= b for a, b in pairwise(times)), "times go back")
    return rows


def check_publisher(rows: list[Row], publisher: Roaming, findings: Findings) -> int:
    """What is acknowledged is there, unchanged, once, in order. Returns how many others are not there."""
    name = publisher.name
    findings.check(not publisher.wrong, f"{name}: {publisher.wrong}")
    mark = name.encode() + b" "
    own = [row for row in rows if row.payload.startswith(mark)]
    numbers = [int(row.payload.split(b" ", 2)[1]) for row in own]
    for row, number in zip(own, numbers, strict=True):
        findings.check(publisher.sent[number] == (row.topic, row.payload), f"{name}: {number} is another")
    doubled = [number for number, times in Counter(numbers).items() if times > 1]
    findings.doubled += len(doubled)
    findings.check(not doubled, f"{name}: {len(doubled):,} doubled: {doubled[:5]}")
    lost = publisher.acked - set(numbers)
    findings.lost += len(lost)
    findings.check(not lost, f"{name}: {len(lost):,} acknowledged and lost: {sorted(lost)[:5]}")
    refused = publisher.refused & set(numbers)
    findings.check(not refused, f"{name}: {len(refused):,} were refused, and are there")
    moved = list(_find_moved(numbers, publisher))
    findings.moved += len(moved)
    findings.check(not moved, f"{name}: {len(moved):,} moved: {moved[:5]}")
    if isinstance(publisher, RoamingIdempotent | Committing):
        _check_units(own, numbers, publisher, findings)
    return len(publisher.sent) - len(numbers)


def _check_units(
    own: list[Row], numbers: list[int], publisher: RoamingIdempotent | Committing, findings: Findings
) -> None:
    """A batch is there as a whole and in one place, or not at all."""
    offsets = {number: row.offset for row, number in zip(own, numbers, strict=True)}
    for unit in publisher.units:
        there = [offsets[number] for number in unit.numbers if number in offsets]
        whole = not there or there == list(range(there[0], there[0] + len(unit.numbers)))
        findings.check(whole, f"{unit.batch_id}: {len(there):,} of {len(unit.numbers):,}, at {there[:5]}")


def _find_moved(numbers: list[int], publisher: Roaming) -> Iterator[int]:
    """Of all that was acknowledged, and of each connection. A node may store what a lost connection had sent
    after what the publisher sent to another node since."""
    acked = [number for number in numbers if number in publisher.acked]
    yield from (b for a, b in pairwise(acked) if a > b)
    last: dict[int, int] = {}
    for number in numbers:
        life = bisect_right(publisher.lives, number)
        if number < last.get(life, -1):
            yield number
        last[life] = number


def check_resuming(rows: list[Row], subscriber: Resuming, findings: Findings) -> None:
    findings.check(not subscriber.wrong, subscriber.wrong)
    expected = [Seen(row.offset, row.topic, row.sequence, digest(row.payload)) for row in rows]
    other = next(((seen, row) for seen, row in zip(subscriber.seen, expected, strict=False) if seen != row), None)
    findings.check(other is None, f"a subscriber got and should have got {other}")
    same = len(subscriber.seen) == len(expected)
    findings.check(same, f"a subscriber got {len(subscriber.seen):,} of {len(expected):,}")


def check_spark(rows: list[Row], writer: SparkWriter, findings: Findings) -> None:
    """The stream counts from 0: each number once, in a row, and all that it reports as committed."""
    numbers = [int(row.payload) for row in rows if row.topic == SPARK_TOPIC]
    doubled = len(numbers) - len(set(numbers))
    holes = set(range(max([writer.committed, *(number + 1 for number in numbers)]))) - set(numbers)
    findings.doubled += doubled
    findings.lost += len(holes)
    findings.check(not doubled, f"Spark: {doubled:,} doubled")
    findings.check(not holes, f"Spark: {len(holes):,} of {len(numbers):,} lost: {sorted(holes)[:5]}")


def count_misses(rows: list[Row], subscriber: Listening, findings: Findings) -> tuple[int, int]:
    """Messages that it missed, and those that it got again."""
    durable = Counter((row.topic, digest(row.payload)) for row in rows)
    seen = Counter(subscriber.seen)
    findings.check(seen.keys() <= durable.keys(), "delivered, and not stored")
    return sum((durable - seen).values()), sum((seen - durable).values())
