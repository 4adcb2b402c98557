"""The report: what was measured, and the arithmetic on it, as plain data and as JSON.

Machines are noisy, from one second to the next and from one hour to the next. So a rate stands with its
median and its best, and what counts is the ratio of ours to a peer, taken round by round (the two ran
within seconds of each other) and only then summed up, as median and range. The ratio of two medians would
compare moments that never met.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from polycast.bench.cells import HEADINGS, Cell, Kind
from polycast.bench.job import Outcome
from polycast.bench.machine import Machine


@dataclass(frozen=True)
class Ratio:
    """Polycast's rate divided by a peer's, or by its own under easier terms: above 1, it is the faster."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class CellReport:
    """One cell: for each target its outcomes, one per round. `ours` are compared with each of the others."""

    cell: Cell
    outcomes: dict[str, list[Outcome]]
    ours: tuple[str, ...]

    @property
    def peers(self) -> list[str]:
        return [target for target in self.outcomes if target not in self.ours]

    def rates(self, target: str) -> list[float]:
        return [outcome.rate for outcome in self.outcomes[target] if not outcome.error]

    def median_rate(self, target: str) -> float | None:
        rates = self.rates(target)
        return median(rates) if rates else None

    def best_rate(self, target: str) -> float | None:
        return max(self.rates(target), default=None)

    def median_memory(self, target: str) -> int | None:
        sizes = [outcome.memory_bytes for outcome in self.outcomes[target] if outcome.memory_bytes]
        return round(median(sizes)) if sizes else None

    def behind_seconds(self, target: str) -> float:
        """How long its log took at most to have everything, once everything was delivered."""
        return max(outcome.behind_seconds for outcome in self.outcomes[target])

    def errors(self, target: str) -> list[str]:
        return [outcome.error for outcome in self.outcomes[target] if outcome.error]

    def ratio(self, ours: str, peer: str) -> Ratio | None:
        """None where no round measured both."""
        rounds = zip(self.outcomes[ours], self.outcomes[peer], strict=True)
        ratios = [mine.rate / theirs.rate for mine, theirs in rounds if not (mine.error or theirs.error)]
        return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None


@dataclass(frozen=True)
class Section:
    """The cells of one kind, and everyone they are compared with."""

    kind: Kind
    cells: list[CellReport]

    @property
    def heading(self) -> str:
        return HEADINGS[self.kind]

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(peer for cell in self.cells for peer in cell.peers))


@dataclass(frozen=True)
class Report:
    machine: Machine
    version: str
    """Polycast's own."""
    rounds: int
    seconds: float
    window_bytes: int
    fsync_seconds: float
    peers: dict[str, str]
    """The peers that took part, and their versions."""
    missing: dict[str, str]
    """The peers that are not installed, and the command that brings each."""
    cells: list[CellReport]

    @property
    def sections(self) -> list[Section]:
        found = [Section(kind, [cell for cell in self.cells if cell.cell.kind == kind]) for kind in HEADINGS]
        return [section for section in found if section.cells]

    @property
    def failed(self) -> bool:
        """Whether any measurement gave an error instead of a number."""
        return any(cell.errors(target) for cell in self.cells for target in cell.outcomes)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "cells": [_cell_to_dict(cell) for cell in self.cells]}

    def write_json(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n")


def _cell_to_dict(report: CellReport) -> dict[str, Any]:
    ours = {
        target: {**_target_to_dict(report, target), "ratios": _ratios_to_dict(report, target)}
        for target in report.ours
    }
    peers = {peer: _target_to_dict(report, peer) for peer in report.peers}
    return {**asdict(report.cell), "polycast": ours, "peers": peers}


def _target_to_dict(report: CellReport, target: str) -> dict[str, Any]:
    return {
        "median_per_second": report.median_rate(target),
        "best_per_second": report.best_rate(target),
        "median_memory_bytes": report.median_memory(target),
        "rounds": [asdict(outcome) for outcome in report.outcomes[target]],
    }


def _ratios_to_dict(report: CellReport, target: str) -> dict[str, Any]:
    ratios = {peer: report.ratio(target, peer) for peer in report.peers}
    return {peer: asdict(ratio) if ratio else None for peer, ratio in ratios.items()}
