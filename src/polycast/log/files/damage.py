"""Reading a hot segment past its damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polycast.errors import LogDamageError
from polycast.log.files.format import SCHEMA, Layout
from polycast.log.files.hot import Group, HotReader
from polycast.log.files.state import read_state


class Damage(NamedTuple):
    """Bytes that are not a valid group, and the offsets that are missing there."""

    position: int
    first: int
    next: int | None
    """None if no group follows."""
    reason: str

    @property
    def torn(self) -> bool:
        """Whether this may be a group whose write was interrupted."""
        return self.next is None


def open_damaged(path: Path) -> HotReader | None:
    """A reader also for a segment with a damaged head, if the state file has the seed. Otherwise None."""
    try:
        return HotReader(path)
    except LogDamageError:
        state = read_state(path.parent)
        return HotReader(path, Layout.of(SCHEMA, int(state.seed, 16))) if state else None


def walk(reader: HotReader, first: int) -> Iterator[Group | Damage]:
    """Every valid group, and the damage between them. `first` is the expected first offset."""
    while True:
        reason = ""
        try:
            for group in reader.groups():
                first = group.header.next
                yield group
        except LogDamageError as error:
            reason = str(error)
        position = reader.position
        header = reader.find_group(first)
        if not reason and not header:
            return
        if not reason and not reader.ends_at(position):
            reader.position = position  # the writer has appended a group meanwhile
            continue
        reason = reason or f"{reader.path}, byte {position:,}: zeros, and groups follow behind them"
        yield Damage(position, first, header.first if header else None, reason)
        if not header:
            return
