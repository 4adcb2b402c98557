"""Round robin over connections without a known identity that used up their turn.

The event loop reads every connection in each iteration. A connection without a known identity that used up its
turn is paused until the scheduler resumes it: one connection per iteration, one address group after the other. So
any number of unknown peers that send without pause delay a client with a token by one turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol


class PausedReader(Protocol):
    address_group: str

    def begin_turn(self) -> None: ...


class ReadScheduler:
    def __init__(self) -> None:
        self._paused: OrderedDict[str, OrderedDict[PausedReader, None]] = OrderedDict()
        """By address group; the next turn is that of the first reader of the first group."""

    def add(self, reader: PausedReader) -> None:
        """Call `begin_turn` when it is the turn of this paused reader."""
        if not self._paused:
            asyncio.get_running_loop().call_soon(self._resume_next)
        self._paused.setdefault(reader.address_group, OrderedDict())[reader] = None

    def _resume_next(self) -> None:
        group, readers = self._paused.popitem(last=False)
        reader, _ = readers.popitem(last=False)
        if readers:
            self._paused[group] = readers
        if self._paused:
            asyncio.get_running_loop().call_soon(self._resume_next)
        reader.begin_turn()
