"""Rows of a replay that are read before they are needed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from log.log_builder import LogBuilder, flip
from polycast.log.files.hot import GroupPosition
from polycast.log.read.segment_index import SegmentIndex
from polycast.log.read.work import Work, finish
from polycast.server.replay.read_ahead import ROWS, ReadAhead, ReadRows


class Threads:
    """Work that the test finishes."""

    def __init__(self) -> None:
        self.started: list[tuple[Work[Any], asyncio.Future[Any]]] = []

    def start(self, work: Work[Any]) -> asyncio.Future[Any]:
        self.started.append((work, asyncio.get_running_loop().create_future()))
        return self.started[-1][1]

    def finish(self) -> None:
        work, future = self.started.pop()
        future.set_result(finish(work))

    async def read(self, rows: ReadAhead, offset: int, stop: int) -> ReadRows:
        reading = asyncio.ensure_future(rows.read(offset, stop))
        while not reading.done():
            await asyncio.sleep(0)
            if self.started:
                self.finish()
        return reading.result()


def anywhere(offset: int) -> None:
    """No position is known."""


def offsets(found: ReadRows) -> tuple[int, int]:
    assert found.batch
    column = found.batch["offset"]
    return column[0].as_py(), column[-1].as_py() + 1


def test_rows_are_read_once_and_in_order(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(2 * ROWS + 10, topics=["a"])
    threads = Threads()
    rows = ReadAhead(tmp_path, threads.start, anywhere)

    async def run() -> None:
        found = await threads.read(rows, 5, 3 * ROWS)
        assert offsets(found) == (5, found.next)
        rows.begin(found.next, 3 * ROWS)
        threads.finish()
        following = await rows.read(found.next, 3 * ROWS)
        assert offsets(following) == (found.next, following.next)
        await rows.close()

    asyncio.run(run())


def test_rows_that_are_no_longer_next_are_read_again(tmp_path: Path) -> None:
    """Memory has served the subscriber meanwhile, or the subscriber took less than was read."""
    LogBuilder(tmp_path).segment(ROWS + 100, topics=["a"])
    threads = Threads()
    rows = ReadAhead(tmp_path, threads.start, anywhere)

    async def run() -> None:
        rows.begin(0, ROWS)
        assert offsets(await threads.read(rows, ROWS + 20, ROWS + 90)) == (ROWS + 20, ROWS + 90)
        assert offsets(await threads.read(rows, ROWS + 90, ROWS + 95)) == (ROWS + 90, ROWS + 95)
        await rows.close()
        assert offsets(await threads.read(rows, 3, 9)) == (3, 9)
        await rows.close()

    asyncio.run(run())


def test_a_failed_read_does_not_fail_what_does_not_need_it(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(100, topics=["a"])
    threads = Threads()
    rows = ReadAhead(tmp_path, threads.start, anywhere)

    async def run() -> None:
        rows.begin(0, 50)
        threads.started.pop()[1].set_exception(OSError("no"))
        assert offsets(await threads.read(rows, 60, 70)) == (60, 70)
        rows.begin(70, 80)
        threads.started.pop()[1].set_exception(OSError("no"))
        with pytest.raises(OSError, match="no"):
            await rows.read(70, 80)
        await rows.close()

    asyncio.run(run())


def test_the_end_of_the_log(tmp_path: Path) -> None:
    LogBuilder(tmp_path).segment(10, topics=["a"])
    threads = Threads()
    rows = ReadAhead(tmp_path, threads.start, anywhere)
    assert asyncio.run(threads.read(rows, 10, 15)) == (None, [], 15)


def test_a_read_ahead_without_rows_is_made_again(tmp_path: Path) -> None:
    """Messages that were lost there may be recorded by now."""
    builder = LogBuilder(tmp_path)
    builder.segment(10)
    threads = Threads()
    rows = ReadAhead(tmp_path, threads.start, anywhere)

    async def run() -> None:
        await threads.read(rows, 0, 10)
        rows.begin(10, 15)
        threads.finish()
        builder.skip(5, "not stored: disk full")
        builder.segment(3)
        found = await threads.read(rows, 10, 18)
        assert offsets(found) == (15, 18)
        assert [(gap.first, gap.next) for gap in found.skipped] == [(10, 15)]
        await rows.close()

    asyncio.run(run())


def test_groups_before_the_first_row_are_not_read_again(tmp_path: Path) -> None:
    """A slow replay opens the file anew for each piece."""
    builder = LogBuilder(tmp_path)
    path = builder.segment(10, 10, 10)
    flip(path, builder.positions[0] + 100)
    index, threads, searches = SegmentIndex(tmp_path), Threads(), []

    def find(offset: int) -> GroupPosition | None:
        searches.append(offset)
        return index.position(offset)

    rows = ReadAhead(tmp_path, threads.start, find)

    async def run() -> None:
        found = await threads.read(rows, 12, 14)
        assert offsets(found) == (12, 14)
        assert not found.skipped
        assert offsets(await threads.read(rows, 14, 16)) == (14, 16)
        assert offsets(await threads.read(rows, 25, 30)) == (25, 30)
        await rows.close()

    asyncio.run(run())
    index.close()
    assert searches == [12, 25]
