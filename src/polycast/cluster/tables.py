"""Compares the tables of all nodes: digests of ranges of offsets, then of smaller ranges where they differ."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from polycast.cluster.peers import collect, request_node
from polycast.cluster.stream import Stream
from polycast.errors import ClusterError
from polycast.log.files.sealed import digest_of
from polycast.log.read.reader import Reader
from polycast.log.read.seek import first_offset

STEP = 1 << 16
"""Rows per digest, in the first round."""
ZOOM = 1 << 8
DIGESTS_AT_MOST = 64
"""Digests per request."""
SECONDS = 60.0


class TableRange(msgspec.Struct, frozen=True):
    first: int
    next: int
    agreed: int
    """Retention: all nodes remove the offsets below this one. A node may still have some, because it removes whole
    segments."""


class DigestRequest(msgspec.Struct, frozen=True):
    first: int
    next: int
    step: int


class StepDigest(msgspec.Struct, frozen=True, array_like=True):
    rows: int
    """The readable rows."""
    digest: str


class TableDifference(NamedTuple):
    nodes: list[str]
    reason: str
    """"majority": these nodes differ from most; "missing": they have not all rows; "undecided": nobody knows which
    of them are right."""


# -- at each node ----------------------------------------------------------------------------------------


def range_of(folder: Path, durable_next: int, agreed: int) -> TableRange:
    first = first_offset(folder)
    return TableRange(durable_next if first is None else first, durable_next, agreed)


def digests_of(folder: Path, wanted: DigestRequest) -> list[StepDigest]:
    """One digest for each step. Unreadable rows are left out."""
    if wanted.step > STEP:
        raise ClusterError(f"a digest of {wanted.step:,} rows; at most {STEP:,}")
    if wanted.step < 1 or wanted.next - wanted.first > wanted.step * DIGESTS_AT_MOST:
        raise ClusterError(f"more than {DIGESTS_AT_MOST} digests in one request")
    reader = Reader(folder, wanted.first)
    try:
        return [
            _digest(reader, min(start + wanted.step, wanted.next))
            for start in range(wanted.first, wanted.next, wanted.step)
        ]
    finally:
        reader.close()


def _digest(reader: Reader, stop: int) -> StepDigest:
    parts: list[pa.RecordBatch] = []
    while (batch := reader.read(stop)) is not None and batch.num_rows:
        parts.append(batch)
    digest = xxhash.xxh3_128()
    if parts:
        table = pa.Table.from_batches(parts)
        for column in table.columns:
            digest.update(digest_of(column).encode())
    return StepDigest(sum(batch.num_rows for batch in parts), digest.hexdigest())


# -- at the node that compares ---------------------------------------------------------------------------


async def compare_tables(stream: Stream) -> dict[str, Any]:
    """{"nodes", "first", "next", "differs"?: offset, "different"?: nodes, "reason"?: see TableDifference}"""
    while True:
        nodes = [status.node for status in await collect(stream)]
        if not nodes:
            raise ClusterError("no node responds: this node has no connection to a server")
        found = await _compare(stream, nodes, await _ranges(stream, nodes))
        removed = max(each.agreed for each in await _ranges(stream, nodes))
        if found.get("differs", removed) >= removed:  # rows below were removed during the comparison
            return found


async def _ranges(stream: Stream, nodes: list[str]) -> list[TableRange]:
    found = await asyncio.gather(*(request_node(stream, node, "table") for node in nodes))
    return [msgspec.json.decode(each, type=TableRange) for each in found]


async def _compare(stream: Stream, nodes: list[str], ranges: list[TableRange]) -> dict[str, Any]:
    first, after = max(each.agreed for each in ranges), min(each.next for each in ranges)
    result: dict[str, Any] = {"nodes": nodes, "first": first, "next": after}
    if short := [node for node, each in zip(nodes, ranges, strict=True) if first < after and each.first > first]:
        return result | {"differs": first, "different": short, "reason": "missing"}
    found = await _find_difference(stream, nodes, first, after, STEP)
    while found and found[1].step > 1:
        _, wanted = found
        found = (
            await _find_difference(stream, nodes, wanted.first, wanted.next, max(1, wanted.step // ZOOM)) or found
        )
        if found[1] is wanted:
            break
    if found:
        finding, wanted = found
        result |= {"differs": wanted.first, "different": finding.nodes, "reason": finding.reason}
    return result


async def _find_difference(
    stream: Stream, nodes: list[str], first: int, after: int, step: int
) -> tuple[TableDifference, DigestRequest] | None:
    """The nodes that differ, and the first step where they differ."""
    for start in range(first, after, step * DIGESTS_AT_MOST):
        wanted = DigestRequest(start, min(after, start + step * DIGESTS_AT_MOST), step)
        found = await asyncio.gather(*(request_node(stream, node, "digests", wanted, SECONDS) for node in nodes))
        columns = zip(*(msgspec.json.decode(each, type=list[StepDigest]) for each in found), strict=True)
        for index, digests in enumerate(columns):
            if len(set(digests)) > 1:
                begin = start + index * step
                return judge(nodes, digests), DigestRequest(begin, min(begin + step, after), step)
    return None


def judge(nodes: Sequence[str], digests: Sequence[StepDigest]) -> TableDifference:
    """Which nodes are wrong. Without a majority, only a node with missing rows is."""
    [(usual, count)] = Counter(digests).most_common(1)
    most = max(each.rows for each in digests)
    if 2 * count > len(nodes):
        odd = [node for node, each in zip(nodes, digests, strict=True) if each != usual]
        return TableDifference(odd, "majority")
    if short := [node for node, each in zip(nodes, digests, strict=True) if each.rows < most]:
        return TableDifference(short, "missing")
    return TableDifference(list(nodes), "undecided")
