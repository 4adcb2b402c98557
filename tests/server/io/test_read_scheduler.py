"""Paused readers are resumed one per iteration of the event loop, one address group after the other."""

from __future__ import annotations

import asyncio

from polycast.server.io.read_scheduler import ReadScheduler


class Reader:
    def __init__(self, address_group: str, scheduler: ReadScheduler, more: int, resumed: list[str]) -> None:
        self.address_group = address_group
        self._scheduler, self._more, self._resumed = scheduler, more, resumed

    def begin_turn(self) -> None:
        self._resumed.append(self.address_group)
        if self._more:
            self._more -= 1
            self._scheduler.add(self)


def turns(groups: str, more: int = 0) -> list[str]:
    """The readers of each iteration, until none is paused; each reader is paused `more` times again."""

    async def run() -> list[str]:
        scheduler, found = ReadScheduler(), [""]
        resumed: list[str] = []
        for group in groups:
            scheduler.add(Reader(group, scheduler, more, resumed))
        while found[-1] or len(found) == 1:
            resumed.clear()
            await asyncio.sleep(0)
            found.append("".join(resumed))
        return [turn for turn in found if turn]

    return asyncio.run(run())


def test_one_reader_per_iteration() -> None:
    assert turns("a") == ["a"]
    assert turns("aaa") == ["a", "a", "a"]


def test_one_address_group_after_the_other() -> None:
    assert turns("aaaabc") == ["a", "b", "c", "a", "a", "a"]


def test_a_reader_that_is_paused_again_is_last() -> None:
    assert turns("ab", more=1) == ["a", "b", "a", "b"]


def test_a_reader_is_paused_once() -> None:
    async def run() -> list[str]:
        scheduler = ReadScheduler()
        resumed: list[str] = []
        reader = Reader("a", scheduler, 0, resumed)
        scheduler.add(reader)
        scheduler.add(reader)
        for _ in range(4):
            await asyncio.sleep(0)
        return resumed

    assert asyncio.run(run()) == ["a"]
