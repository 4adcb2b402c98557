"""The report: outcomes and their statistics, as data and as JSON.

Machines are noisy. Rates are given as median and best. The ratio of Polycast to a peer is taken per round, where
both ran within seconds of each other, then summed up as median and range; a ratio of two medians would compare
different moments. Delays are given as percentiles of each round, and their medians over all rounds; the ratio is
that of the p99. For a log, the bytes written per second are given, and their share of what the disk took in the
same round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from polycast.bench.cells import HEADINGS, Cell, Kind
from polycast.bench.delays import Percentiles, median_percentiles
from polycast.bench.disk_speed import DISK
from polycast.bench.job import Outcome
from polycast.bench.machine import Machine


@dataclass(frozen=True)
class Ratio:
    """Polycast's rate divided by a peer's, or by its own without the log; above 1: Polycast is faster.

    For delays it is the p99, for a log the bytes per second divided by the disk's.
    """

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class CpuShares:
    """How busy driver and target were; 1 is one core."""

    driver: float
    target: float
    message_seconds: float
    """CPU time of the target per published message."""


@dataclass(frozen=True)
class CellReport:
    """Outcomes by target, one per round. `ours` are compared with each of the others."""

    cell: Cell
    outcomes: dict[str, list[Outcome]]
    ours: tuple[str, ...]

    @property
    def peers(self) -> list[str]:
        return [target for target in self.brokers if target not in self.ours]

    @property
    def brokers(self) -> list[str]:
        """All targets except the disk."""
        return [target for target in self.outcomes if target != DISK]

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

    def median_cpu(self, target: str) -> CpuShares | None:
        """None: not measured."""
        measured = [outcome for outcome in self.outcomes[target] if outcome.cpu.target]
        if not measured:
            return None
        return CpuShares(
            median(outcome.cpu.driver / outcome.elapsed for outcome in measured),
            median(outcome.cpu.target / outcome.elapsed for outcome in measured),
            median(outcome.cpu.target / outcome.published for outcome in measured),
        )

    def median_delays(self, target: str) -> Percentiles | None:
        return median_percentiles(outcome.delays for outcome in self.outcomes[target])

    def median_sent_late(self, target: str) -> Percentiles | None:
        return median_percentiles(outcome.sent_late for outcome in self.outcomes[target])

    def median_log_rate(self, target: str) -> float | None:
        """Bytes per second, written to the log or the disk."""
        rates = [outcome.log_rate for outcome in self.outcomes[target] if outcome.log_bytes]
        return median(rates) if rates else None

    def median_stored_bytes(self, target: str) -> float | None:
        """Bytes of the log per message."""
        sizes = [outcome.stored_bytes for outcome in self.outcomes[target] if outcome.stored_bytes]
        return median(sizes) if sizes else None

    def disk_share(self, target: str) -> Ratio | None:
        """Bytes per second of the log as a share of the disk's; None: no round measured both."""
        if DISK not in self.outcomes:
            return None
        rounds = zip(self.outcomes[target], self.outcomes[DISK], strict=True)
        return to_ratio(log.log_rate / disk.log_rate for log, disk in rounds if log.log_bytes and disk.log_bytes)

    def behind_seconds(self, target: str) -> float:
        """The longest time from the last delivery until everything was durable."""
        return max(outcome.behind_seconds for outcome in self.outcomes[target])

    def errors(self, target: str) -> list[str]:
        return [outcome.error for outcome in self.outcomes[target] if outcome.error]

    def ratio(self, ours: str, peer: str) -> Ratio | None:
        """None: no round measured both."""
        rounds = zip(self.outcomes[ours], self.outcomes[peer], strict=True)
        return to_ratio(_compare(mine, theirs) for mine, theirs in rounds if not (mine.error or theirs.error))


def _compare(mine: Outcome, theirs: Outcome) -> float:
    if mine.delays and theirs.delays:
        return mine.delays.p99 / theirs.delays.p99
    return mine.rate / theirs.rate


def to_ratio(rounds: Iterable[float]) -> Ratio | None:
    ratios = list(rounds)
    return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None


@dataclass(frozen=True)
class Section:
    kind: Kind
    cells: list[CellReport]

    @property
    def heading(self) -> str:
        return HEADINGS[self.kind]

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(peer for cell in self.cells for peer in cell.peers))


@dataclass(frozen=True)
class BenchReport:
    machine: Machine
    version: str
    """Of Polycast."""
    rounds: int
    seconds: float
    window_bytes: int
    fsync_seconds: float
    peers: dict[str, str]
    """Measured peers and their versions."""
    missing: dict[str, str]
    """Peers that are not installed, and the commands that install them."""
    cells: list[CellReport]

    @property
    def sections(self) -> list[Section]:
        """By kind; those of clusters have other peers, and come last."""
        found = [
            Section(kind, [cell for cell in self.cells if (cell.cell.kind, cell.cell.cluster) == (kind, cluster)])
            for cluster in (False, True)
            for kind in HEADINGS
        ]
        return [section for section in found if section.cells]

    @property
    def failed(self) -> bool:
        return any(cell.errors(target) for cell in self.cells for target in cell.outcomes)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "cells": [_cell_to_dict(cell) for cell in self.cells]}

    def write_json(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n")


def _cell_to_dict(report: CellReport) -> dict[str, Any]:
    targets = {target: _target_to_dict(report, target) for target in report.outcomes}
    for target in report.ours:
        ratios = {peer: report.ratio(target, peer) for peer in report.peers}
        targets[target]["ratios"] = {peer: asdict(ratio) if ratio else None for peer, ratio in ratios.items()}
    ours = {target: targets.pop(target) for target in report.ours}
    return {**asdict(report.cell), "polycast": ours, "peers": targets}


def _target_to_dict(report: CellReport, target: str) -> dict[str, Any]:
    return {
        "median_per_second": report.median_rate(target),
        "best_per_second": report.best_rate(target),
        "median_memory_bytes": report.median_memory(target),
        "median_cpu": asdict(cpu) if (cpu := report.median_cpu(target)) else None,
        "median_delays": asdict(delays) if (delays := report.median_delays(target)) else None,
        "median_sent_late": asdict(late) if (late := report.median_sent_late(target)) else None,
        "median_log_bytes_per_second": report.median_log_rate(target),
        "median_log_bytes_per_message": report.median_stored_bytes(target),
        "disk_share": asdict(share) if (share := report.disk_share(target)) else None,
        "rounds": [asdict(outcome) for outcome in report.outcomes[target]],
    }
