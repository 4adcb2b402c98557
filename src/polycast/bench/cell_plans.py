"""The targets that take turns in a cell, and which of them are Polycast.

Live cells compare Polycast with its peers; `logged` cells compare a dialect with itself, log off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polycast.bench.cells import Cell
from polycast.bench.start_times import TARGETS
from polycast.bench.targets import Target, polycast_target

LOG_OFF = "log off"


@dataclass(frozen=True)
class CellPlan:
    cell: Cell
    ours: list[Target]
    others: list[Target]

    @property
    def targets(self) -> list[Target]:
        return [*self.ours, *self.others]

    @property
    def turns(self) -> int:
        """Per round."""
        return len(TARGETS) if self.cell.kind == "start" else len(self.targets)


def plan_cells(cells: Sequence[Cell], peers: Mapping[str, Target], scratch: Path | None) -> Iterator[CellPlan]:
    """`peers`: those installed, by name; `scratch`: the folder for logs."""
    for cell in cells:
        others = [peers[name] for name in cell.peers if name in peers]
        if cell.kind == "live":
            yield CellPlan(cell, [polycast_target(dialect) for dialect in cell.dialects], others)
        elif cell.kind == "logged":
            yield from _log_on_and_off(cell, scratch)
        elif cell.kind == "start":
            yield CellPlan(cell, [], [])
        else:
            ours = [polycast_target(dialect, with_log=True, scratch=scratch) for dialect in cell.dialects]
            yield CellPlan(cell, ours, others)


def _log_on_and_off(cell: Cell, scratch: Path | None) -> Iterator[CellPlan]:
    """One plan per dialect."""
    for dialect in cell.dialects:
        on = polycast_target(dialect, with_log=True, scratch=scratch)
        off = replace(polycast_target(dialect), name=LOG_OFF)
        yield CellPlan(replace(cell, dialects=(dialect,)), [on], [off])
