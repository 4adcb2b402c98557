"""The statistics of the report, and its output as JSON, table and plot."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from polycast.bench.cells import CELLS
from polycast.bench.cpu_time import CpuTime
from polycast.bench.delays import Percentiles
from polycast.bench.job import Outcome
from polycast.bench.machine import describe_machine
from polycast.bench.report import BenchReport, CellReport, Ratio
from polycast.bench.report_table import human, make_table, make_tables, notes, times
from polycast.bench.rounds import rotated, run
from polycast.bench.targets import Target, choose_peers, is_ready, polycast_target, read_listening
from polycast.errors import UsageError


def outcome(rate: int) -> Outcome:
    return Outcome(published=rate, delivered=rate, elapsed=1.0, window=1)


BROKEN = Outcome(error="subscriber 3 got 5 of 9 bytes (-4)")


def cell_report() -> CellReport:
    return CellReport(
        replace(CELLS[0], dialects=("simplest", "fanout")),
        {
            "simplest": [outcome(100), outcome(200), outcome(400), BROKEN],
            "fanout": [outcome(5000), BROKEN, outcome(300), BROKEN],
            "nats": [outcome(50), outcome(400), outcome(100), outcome(1)],
            "redis": [BROKEN] * 4,
        },
        ours=("simplest", "fanout"),
    )


def acked_report() -> CellReport:
    """It has one peer that the other has too, and one of its own."""
    cell = next(cell for cell in CELLS if cell.name == "acked-100")
    late = replace(outcome(3_000_000), behind_seconds=0.75)
    targets = {"hermod": [late] * 4, "nats": [outcome(1000)] * 4, "js-atomic": [outcome(2_000)] * 4}
    return CellReport(cell, targets, ours=("hermod",))


def start_report() -> CellReport:
    cell = next(cell for cell in CELLS if cell.name == "start")
    full = Outcome(delivered=1, elapsed=0.5, memory_bytes=60_000_000)
    empty = Outcome(delivered=1, elapsed=0.25, memory_bytes=45_000_000)
    return CellReport(cell, {"stopped": [full] * 4, "empty log": [empty] * 4}, ours=("stopped",))


def whole_report() -> BenchReport:
    return BenchReport(
        machine=describe_machine(),
        version="1.2.3",
        rounds=4,
        seconds=1.0,
        window_bytes=1,
        fsync_seconds=0.00123,
        peers={"nats": "2.3.4", "redis": "3.4.5"},
        missing={"mosquitto": "apt-get install mosquitto"},
        cells=[cell_report()],
    )


def print_tables(report: BenchReport, console: Console) -> None:
    for section in report.sections:
        for table in make_tables(report, section):
            console.print(table)


def test_ratio_is_taken_round_by_round() -> None:
    """Round by round 2, 0.5 and 4; the round in which one of the two failed does not count."""
    assert cell_report().ratio("simplest", "nats") == Ratio(median=2.0, low=0.5, high=4.0)
    assert cell_report().ratio("fanout", "nats") == Ratio(median=51.5, low=3.0, high=100.0)


def test_no_ratio_without_a_common_round() -> None:
    assert cell_report().ratio("simplest", "redis") is None


def test_peers_are_the_other_targets() -> None:
    assert cell_report().peers == ["nats", "redis"]


def test_median_and_best() -> None:
    report = cell_report()
    assert (report.median_rate("simplest"), report.best_rate("simplest")) == (200, 400)
    assert (report.median_rate("redis"), report.best_rate("redis")) == (None, None)


def test_a_failure_shows() -> None:
    assert whole_report().failed
    assert cell_report().errors("simplest") == [BROKEN.error]


def test_rotation_gives_each_target_each_position() -> None:
    targets = [Target(name, "nats", "1", lambda: pytest.fail("not to be started")) for name in "abc"]
    orders = [[target.name for target in rotated(targets, number)] for number in range(4)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("rate", "text"),
    [(999_800, "1.00M"), (1_234_567, "1.23M"), (45_678, "45.7k"), (123_456, "123k"), (789, "789"), (7.5, "7.50")],
)
def test_human(rate: float, text: str) -> None:
    assert human(rate) == text


def test_times() -> None:
    assert [times(0.456), times(1.234), times(45.67), times(456.7)] == ["0.46", "1.23", "45.7", "457"]


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    whole_report().write_json(path)
    written = json.loads(path.read_text())
    assert written["machine"]["cores"] >= 1
    assert written["missing"] == {"mosquitto": "apt-get install mosquitto"}
    cell = written["cells"][0]
    assert list(cell["polycast"]) == ["simplest", "fanout"]
    assert list(cell["peers"]) == ["nats", "redis"]
    simplest = cell["polycast"]["simplest"]
    assert simplest["ratios"] == {"nats": {"median": 2.0, "low": 0.5, "high": 4.0}, "redis": None}
    assert len(simplest["rounds"]) == len(cell["peers"]["nats"]["rounds"]) == 4


def test_table_fits_eighty_columns_and_names_everything() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80)
    print_tables(whole_report(), console)
    for note in notes(whole_report()):
        console.print(note)
    printed = file.getvalue()
    assert "…" not in printed
    for part in (
        "2.00x",
        "0.50-4.00",
        "51.5x",
        "3.00-100",
        "apt-get install mosquitto",
        "redis 3.4.5",
        "(-4)",
        "error",
    ):
        assert part in printed


def test_table_with_every_peer_fits_eighty_columns() -> None:
    """The widest it can get: long names, and ranges of nine characters at every peer."""
    rates = [outcome(9_150_000), outcome(99_400_000)]
    targets = {"simplest": rates, "nats": rates[::-1], "redis": rates[::-1], "mosquitto": rates[::-1]}
    cell = CellReport(replace(CELLS[4], payload_bytes=100), targets, ours=("simplest",))
    report = replace(whole_report(), peers=dict.fromkeys(("nats", "redis", "mosquitto"), "1"), cells=[cell])
    file = io.StringIO()
    print_tables(report, Console(file=file, width=80))
    assert "…" not in file.getvalue()
    assert file.getvalue().count("0.09-10.9") == 3


def test_log_cells_with_every_peer_fit_eighty_columns() -> None:
    rates = [outcome(9_150_000), outcome(99_400_000)]
    cells = [
        CellReport(cell, dict.fromkeys(("hermod", *(cell.peers or ("empty log",))), rates), ours=("hermod",))
        for cell in CELLS
        if cell.kind != "live"
    ]
    file = io.StringIO()
    print_tables(replace(whole_report(), cells=cells), Console(file=file, width=80))
    assert "…" not in file.getvalue()


def test_each_kind_of_cell_has_its_own_table() -> None:
    report = replace(whole_report(), cells=[start_report(), cell_report(), acked_report()])
    assert [section.kind for section in report.sections] == ["live", "acked", "start"]
    assert [section.peers for section in report.sections] == [
        ["nats", "redis"],
        ["nats", "js-atomic"],
        ["empty log"],
    ]


def test_start_times_are_shown_in_seconds() -> None:
    report = replace(whole_report(), cells=[start_report()])
    file = io.StringIO()
    print_tables(report, Console(file=file, width=80))
    printed = file.getvalue()
    for part in ("0.50 s", "0.25 s", " 60 ", " 45 ", "0.50x"):
        assert part in printed


def test_a_ratio_stands_under_its_own_peer() -> None:
    """Also where another cell of the table has peers that this one has not."""
    alone = replace(acked_report(), cell=CELLS[0], outcomes={**acked_report().outcomes})
    del alone.outcomes["nats"]
    both = replace(whole_report(), cells=[replace(acked_report(), cell=CELLS[0]), alone])
    table = make_table(both, both.sections[0])
    assert [str(cell).partition("\n")[0] for cell in table.columns[-2].cells] == ["3000x", "", "", "", ""]
    assert [str(cell).partition("\n")[0] for cell in table.columns[-1].cells] == ["1500x", "", "", "1500x", ""]


def test_notes_show_the_disk_and_a_log_that_is_behind() -> None:
    output = "\n".join(notes(replace(whole_report(), cells=[acked_report(), start_report()])))
    assert "fsync 1.23 ms" in output
    assert "acked-100, hermod: the log had everything up to 0.8 s later" in output
    assert "start: 10,000,000 messages of 100 B in the log" in output


def test_the_report_says_how_busy_driver_and_target_were() -> None:
    """As the medians of the rounds that were measured; the CPU time of the target also per published message."""
    busy = [
        replace(outcome(1_000_000), cpu=CpuTime(driver, target)) for driver, target in ((0.2, 0.5), (0.4, 0.9))
    ]
    nowhere = replace(outcome(1_000_000), elapsed=2.0)
    cell = CellReport(CELLS[0], {"hermod": [*busy, BROKEN], "nats": [nowhere] * 3}, ours=("hermod",))
    report = replace(whole_report(), cells=[cell])
    file = io.StringIO()
    print_tables(report, Console(file=file, width=80))
    lines = [line.split() for line in file.getvalue().splitlines()]
    assert ["1:1", "hermod", "30%", "70%", "700"] in lines
    assert any("ns/message" in note for note in notes(report))
    assert report.to_dict()["cells"][0]["polycast"]["hermod"]["median_cpu"]["target"] == pytest.approx(0.7)
    assert report.to_dict()["cells"][0]["peers"]["nats"]["median_cpu"] is None


def test_a_report_without_cpu_times_has_no_such_table() -> None:
    report = whole_report()
    assert len(list(make_tables(report, report.sections[0]))) == 1
    assert not any("ns/message" in note for note in notes(report))


def delay_report() -> CellReport:
    cell = next(cell for cell in CELLS if cell.name == "open-50k:10")

    def delayed(p99: float) -> Outcome:
        delays = Percentiles(0.000_1, p99, 0.012)
        return replace(outcome(1), delays=delays, sent_late=delays, cpu=CpuTime(0.5, 0.5))

    rounds = {"simplest": (0.002, 0.001, 0.003), "log on": (0.008, 0.004, 0.006), "nats": (0.004, 0.001, 0.002)}
    outcomes = {name: [*map(delayed, p99), BROKEN] for name, p99 in rounds.items()}
    return CellReport(cell, {**outcomes, "redis": outcomes["nats"]}, ours=("simplest", "log on"))


def logged_report() -> CellReport:
    cell = next(cell for cell in CELLS if cell.name == "logged-1:1")
    written = [replace(outcome(9), log_bytes=size, stored_bytes=125.0) for size in (100_000_000, 300_000_000)]
    disk = [replace(outcome(9), log_bytes=400_000_000)] * 2
    return CellReport(cell, {"simplest": written, "log off": [outcome(18)] * 2, "disk": disk}, ours=("simplest",))


def test_delays_are_compared_by_their_p99_round_by_round() -> None:
    assert delay_report().ratio("simplest", "nats") == Ratio(median=1.0, low=0.5, high=1.5)
    assert delay_report().median_delays("log on") == Percentiles(0.000_1, 0.006, 0.012)


def test_delays_are_shown_in_microseconds() -> None:
    report = replace(whole_report(), cells=[delay_report()])
    file = io.StringIO()
    print_tables(report, Console(file=file, width=80))
    lines = [line.split() for line in file.getvalue().splitlines()]
    assert ["open-50k:10", "simplest", "100", "2,000", "12,000", "1.00x", "1.00x"] in lines
    assert ["nats", "100", "2,000", "12,000"] in lines
    assert ["nats", "50%", "50%", "500,000,000", "2,000"] in lines
    assert "4 rounds of 2 s" in file.getvalue()
    assert any("below 1 Polycast is faster" in note for note in notes(report))
    late = "open-50k:10 simplest, open-50k:10 log on, open-50k:10 nats, open-50k:10 redis"
    assert f"the driver itself was late, other programs use this machine: {late}" in notes(report)
    assert report.to_dict()["cells"][0]["polycast"]["simplest"]["median_delays"]["p99"] == 0.002


def test_the_log_is_shown_as_a_share_of_the_disk() -> None:
    """The disk is no broker: it has no line of its own, and nothing is compared with it but the log."""
    report = replace(whole_report(), cells=[logged_report()])
    assert logged_report().peers == ["log off"]
    assert logged_report().disk_share("simplest") == Ratio(median=0.5, low=0.25, high=0.75)
    file = io.StringIO()
    print_tables(report, Console(file=file, width=80))
    lines = [line.split() for line in file.getvalue().splitlines()]
    assert ["logged-1:1", "simplest", "160", "200", "400", "50%", "125"] in lines
    assert ["25%-75%"] in lines
    assert report.to_dict()["cells"][0]["polycast"]["simplest"]["disk_share"]["median"] == 0.5


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install matplotlib")
    from polycast.bench.plot import draw

    report = replace(whole_report(), cells=[cell_report(), delay_report(), acked_report(), start_report()])
    draw(report, tmp_path / "bench.svg", tmp_path / "bench.png")
    assert (tmp_path / "bench.svg").read_text().startswith("<?xml")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(UsageError, match="'kafka'") as caught:
        choose_peers(["kafka"])
    assert (
        caught.value.hint
        == "known are nats, redis, mosquitto, jetstream, js-lazy, js-atomic, nats-cluster, js-cluster"
    )
    with pytest.raises(UsageError, match="'nats'") as caught:
        polycast_target("nats")
    assert caught.value.hint == "known are simplest, ubre, hermod, nanomsg, fanout"


@pytest.mark.parametrize(("rounds", "seconds"), [(0, 1.0), (1, 0.0)])
def test_measuring_nothing_is_refused(rounds: int, seconds: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(None, [], rounds, seconds, tmp_path, Console(file=io.StringIO()))


def test_ports_are_read_from_the_output_of_serve() -> None:
    output = "listening hermod.pub tcp://127.0.0.1:7\nlistening http tcp://127.0.0.1:8080\nready\n"
    assert is_ready(output)
    assert not is_ready("almost ready\n")
    assert read_listening(output) == {"hermod.pub": 7, "http": 8080}
