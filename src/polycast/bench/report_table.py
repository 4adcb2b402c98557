"""The report for people: a table per kind of cell, one line per cell and target."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from polycast.bench.cells import TIMED_BY_DELAY, Kind
from polycast.bench.disk_speed import DISK
from polycast.bench.machine import Machine
from polycast.bench.report import BenchReport, CellReport, Section

UNITS = (("M", 1_000_000), ("k", 1_000))
DECIMALS = ((10, 2), (100, 1))
"""(limit, decimals for ratios below it)."""
TIMED = ("live", "open-loop", "logged", "durable", "acked", "latency")
"""Kinds whose rounds last `--seconds`."""
BEHIND_SECONDS = 0.1
"""Report that the log was behind from this time on."""
SHORT_SECONDS = 0.1
LATE_SHARE = 0.5
STARTS = "from process start until ready, and the memory after it"


def make_tables(report: BenchReport, section: Section) -> Iterator[Table]:
    yield make_table(report, section)
    if any(cell.disk_share(target) for cell in section.cells for target in cell.ours):
        yield make_log_table(section)
    if any(cell.median_cpu(target) for cell in section.cells for target in cell.brokers):
        yield make_cpu_table(section)


def make_table(report: BenchReport, section: Section) -> Table:
    """Lines of Polycast show the ratio to each peer, with the range of all rounds below."""
    headings, figures = _columns(section.kind)
    table = _new_table(_title(report, section), *headings, *section.peers)
    for cell in section.cells:
        for number, target in enumerate(cell.brokers):
            name = cell.cell.name if number == 0 else ""
            table.add_row(name, target, *figures(cell, target), *_ratios(cell, target, section.peers))
        table.add_section()
    return table


def _title(report: BenchReport, section: Section) -> str:
    heading = STARTS if section.kind == "start" else section.heading
    seconds = f" of {section.cells[0].cell.seconds(report.seconds):g} s" if section.kind in TIMED else ""
    return f"{heading}, {report.rounds} rounds{seconds}"


def _columns(kind: Kind) -> tuple[tuple[str, ...], Callable[[CellReport, str], Iterator[str]]]:
    if kind in TIMED_BY_DELAY:
        return ("p50", "p99", "p99.9"), _delays
    if kind in ("start", "latency"):
        return ("median", "best", "MB"), _durations
    return ("median", "best", "MB/s"), _rates


def make_log_table(section: Section) -> Table:
    """What the log wrote while the clock ran, beside what the disk took in the same round."""
    headings = ("payload", "log", "disk", "of the disk", "B/message")
    table = _new_table("bytes written to the log, and by a program that only writes, MB/s", *headings)
    for cell in section.cells:
        for target in cell.ours:
            table.add_row(cell.cell.name, target, *_log(cell, target))
    return table


def make_cpu_table(section: Section) -> Table:
    """How busy driver and target were. A driver at 100 % of a core was the limit, whatever the target could do."""
    late = ["sent late"] if section.kind in TIMED_BY_DELAY else []
    table = _new_table(f"{section.heading}: CPU", "driver", "target", "ns/message", *late)
    for cell in section.cells:
        for number, target in enumerate(cell.brokers):
            table.add_row(cell.cell.name if number == 0 else "", target, *_cpu(cell, target))
        table.add_section()
    return table


def _new_table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, show_edge=False)
    table.add_column("cell", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _log(cell: CellReport, target: str) -> Iterator[str]:
    rate, stored = cell.median_log_rate(target), cell.median_stored_bytes(target)
    disk = cell.median_log_rate(DISK) if DISK in cell.outcomes else None
    share = cell.disk_share(target)
    yield f"{rate * cell.cell.payload_bytes / stored / 1e6:,.0f}" if rate and stored else ""
    yield f"{rate / 1e6:,.0f}" if rate else ""
    yield f"{disk / 1e6:,.0f}" if disk else ""
    yield f"{share.median:.0%}\n{share.low:.0%}-{share.high:.0%}" if share else ""
    yield f"{stored:,.0f}" if stored else ""


def _delays(cell: CellReport, target: str) -> Iterator[str]:
    delays = cell.median_delays(target)
    if delays is None:
        yield from ("error", "", "")
        return
    for seconds in (delays.p50, delays.p99, delays.p999):
        yield f"{seconds * 1e6:,.0f}"


def _cpu(cell: CellReport, target: str) -> Iterator[str]:
    if cpu := cell.median_cpu(target):
        yield f"{cpu.driver:.0%}"
        yield f"{cpu.target:.0%}"
        yield f"{cpu.message_seconds * 1e9:,.0f}"
    if late := cell.median_sent_late(target):
        yield f"{late.p99 * 1e6:,.0f}"


def _rates(cell: CellReport, target: str) -> Iterator[str]:
    rate, best = cell.median_rate(target), cell.best_rate(target)
    yield human(rate) if rate else "error"
    yield human(best) if best else ""
    yield f"{rate * cell.cell.payload_bytes / 1e6:,.0f}" if rate else ""


def _durations(cell: CellReport, target: str) -> Iterator[str]:
    rate, best = cell.median_rate(target), cell.best_rate(target)
    yield duration(1 / rate) if rate else "error"
    yield duration(1 / best) if best else ""
    memory = cell.median_memory(target)
    yield f"{memory / 1e6:,.0f}" if memory else ""


def _ratios(cell: CellReport, target: str, peers: list[str]) -> Iterator[str]:
    for peer in peers if target in cell.ours else ():
        ratio = cell.ratio(target, peer) if peer in cell.peers else None
        yield f"{times(ratio.median)}x\n{times(ratio.low)}-{times(ratio.high)}" if ratio else ""


def duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= SHORT_SECONDS else f"{seconds * 1000:.2f} ms"


def human(rate: float) -> str:
    """Three significant digits and a unit: 1.23M, 45.6k, 789."""
    rate = float(f"{rate:.3g}")  # 999,800 is 1.00M
    unit, size = next(((unit, size) for unit, size in UNITS if rate >= size), ("", 1))
    return f"{rate / size:#.3g}".rstrip(".") + unit


def times(ratio: float) -> str:
    """0.45, 1.23, 45.6, 789."""
    decimals = next((decimals for below, decimals in DECIMALS if ratio < below), 0)
    return f"{ratio:.{decimals}f}"


def notes(report: BenchReport) -> Iterator[str]:
    """Lines under the tables, as markup: machine, versions, missing peers, errors."""
    yield from _legend(report)
    for cell in report.cells:
        if cell.cell.stored:
            yield f"{cell.cell.name}: {cell.cell.stored:,} messages of {cell.cell.payload_bytes} B in the log"
        for target in cell.outcomes:
            if (behind := cell.behind_seconds(target)) >= BEHIND_SECONDS:
                yield f"{cell.cell.name}, {target}: the log had everything up to {behind:.1f} s later"
    if late := [name for cell in report.cells for name in _late_targets(cell)]:
        yield f"the driver itself was late, other programs use this machine: {', '.join(late)}"
    yield escape(_machine(report.machine)) + f", fsync {report.fsync_seconds * 1000:.2f} ms"
    versions = {"polycast": report.version, **report.peers}
    yield escape(", ".join(f"{name} {version}" for name, version in versions.items()))
    for name, cure in report.missing.items():
        yield f"[yellow]{name} is not installed[/]\nhint: {escape(cure)}"
    for cell in report.cells:
        for target in cell.outcomes:
            for error in dict.fromkeys(cell.errors(target)):
                yield f"[red]error[/] {escape(f'{cell.cell.name}, {target}: {error}')}"


def _late_targets(cell: CellReport) -> Iterator[str]:
    """Targets for which most of the p99 is the driver's own delay."""
    for target in cell.outcomes:
        delays, late = cell.median_delays(target), cell.median_sent_late(target)
        if delays and late and late.p99 > LATE_SHARE * delays.p99:
            yield f"{cell.cell.name} {target}"


def _legend(report: BenchReport) -> Iterator[str]:
    if any(section.peers for section in report.sections):
        yield "under a peer's name: how many times as fast Polycast was, and the range of all rounds"
    if any(section.kind in TIMED_BY_DELAY for section in report.sections):
        yield (
            "delays: under a peer's name the p99 divided by the peer's, below 1 Polycast is faster; "
            "sent late: p99 of the driver's own part, in us"
        )
    if any(cell.disk_share(target) for cell in report.cells for target in cell.ours):
        yield "the log: written while the clock ran; B/message: size of the hot segment per message"
    if any(cell.median_cpu(target) for cell in report.cells for target in cell.outcomes):
        yield "CPU: of one core, while the clock ran; ns/message: CPU time of the target per published message"


def _machine(machine: Machine) -> str:
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB, "
        f"{machine.system} {machine.kernel}, Python {machine.python}"
    )
