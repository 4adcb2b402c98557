"""The plan: which targets take turns at a cell, and which of them are ours.

Live traffic is between Polycast and its peers. Where the log is on, Polycast is also its own peer: the same
dialect with the log off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polycast.bench.cells import Cell
from polycast.bench.starts import TARGETS
from polycast.bench.targets import Target, polycast_target

LOG_OFF = "log off"


@dataclass(frozen=True)
class Plan:
    cell: Cell
    ours: list[Target]
    others: list[Target]

    @property
    def targets(self) -> list[Target]:
        return [*self.ours, *self.others]

    @property
    def turns(self) -> int:
        """In one round."""
        return len(TARGETS) if self.cell.kind == "start" else len(self.targets)


def make_plans(cells: Sequence[Cell], peers: Mapping[str, Target], scratch: Path | None) -> Iterator[Plan]:
    """`peers` are those that are here, by name; `scratch` is where logs go."""
    for cell in cells:
        others = [peers[name] for name in cell.peers if name in peers]
        if cell.kind == "live":
            yield Plan(cell, [polycast_target(dialect) for dialect in cell.dialects], others)
        elif cell.kind == "logged":
            yield from _log_on_and_off(cell, scratch)
        elif cell.kind == "start":
            yield Plan(cell, [], [])
        else:
            ours = [polycast_target(dialect, keep=True, scratch=scratch) for dialect in cell.dialects]
            yield Plan(cell, ours, others)


def _log_on_and_off(cell: Cell, scratch: Path | None) -> Iterator[Plan]:
    """A plan for each dialect: only the same dialect is worth comparing with."""
    for dialect in cell.dialects:
        on = polycast_target(dialect, keep=True, scratch=scratch)
        off = replace(polycast_target(dialect), name=LOG_OFF)
        yield Plan(replace(cell, dialects=(dialect,)), [on], [off])
