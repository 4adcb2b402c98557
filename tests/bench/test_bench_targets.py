"""The whole benchmark in small, against every installed broker."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from polycast.bench.ack_latency import RATE
from polycast.bench.catch_up import TARGETS as CATCH_UP_TARGETS
from polycast.bench.catch_up import measure_catch_up
from polycast.bench.cells import Cell
from polycast.bench.report import CellReport
from polycast.bench.rounds import CellPlan, measure_plan, plan_cells
from polycast.bench.start_times import TARGETS, measure_starts
from polycast.bench.targets import PEERS, PeerBroker, Target, cluster_target, peer_target, polycast_target
from polycast.bench.wires import DIALECTS

ALL = Cell("small", "3 topics x 4 subscribers", topics=3, subscribers=4)
OWN = Cell("small-own", "4 topics, a subscriber each", topics=4, subscribers=4, spread="own")
SINGLES = Cell("small-acked", "2 publishers", kind="acked", topics=2, window=200, dialects=("hermod",))
BATCHES = Cell("small-batches", "2 publishers, batches", kind="acked", topics=2, batch=10, window=100)
LOGGED = Cell("small-logged", "log on", kind="logged", topics=3, subscribers=4, dialects=("simplest", "hermod"))
REPLAY = Cell("small-replay", "replay", kind="replay", dialects=("hermod",), stored=12_000)
START = Cell("small-start", "start", kind="start", topics=2, dialects=("hermod",), stored=2_000)
LATENCY = Cell("small-latency", "1 publisher", kind="latency", dialects=("hermod",))
OPEN = Cell("small-open", "open loop", kind="open-loop", subscribers=2, rate=1000)
DURABLE = Cell("small-durable", "durable", kind="durable", dialects=("simplest", "hermod"), rate=500)
CATCH_UP = Cell("small-catch-up", "catch-up", kind="catch-up", topics=2, dialects=("hermod",), stored=20_000)
SECONDS = 0.2
KEEPERS = [peer for peer in PEERS if "jetstream" in peer.settings]
OTHERS = [peer for peer in PEERS if peer not in KEEPERS]


def show(cell: str, target: str) -> None:
    return


def measure(plan: CellPlan) -> CellReport:
    report = measure_plan(plan, rounds=1, seconds=SECONDS, show=show)
    assert [report.errors(target) for target in report.outcomes] == [[]] * len(plan.targets)
    return report


def check(target: Target, cell: Cell) -> None:
    (outcome,) = measure(CellPlan(cell, [], [target])).outcomes[target.name]
    assert outcome.delivered == outcome.published // cell.topics * cell.deliveries_per_cycle > 0
    assert outcome.cpu.driver > 0


def check_acked(target: Target, cell: Cell) -> None:
    (outcome,) = measure(CellPlan(cell, [], [target])).outcomes[target.name]
    assert outcome.delivered >= cell.topics * outcome.window > 0


def target_of(peer: PeerBroker, scratch: Path) -> Target:
    target = peer_target(peer, scratch)
    if target is None:
        pytest.skip(f"{peer.program} is not installed: {peer.cure}")
    return target


@pytest.mark.interop
@pytest.mark.parametrize("cell", [ALL, OWN], ids=lambda cell: cell.name)
@pytest.mark.parametrize("peer", OTHERS, ids=lambda peer: peer.name)
def test_peer(peer: PeerBroker, cell: Cell, tmp_path: Path) -> None:
    check(target_of(peer, tmp_path), cell)


@pytest.mark.interop
@pytest.mark.parametrize("cell", [SINGLES, BATCHES], ids=lambda cell: cell.name)
@pytest.mark.parametrize("peer", KEEPERS, ids=lambda peer: peer.name)
def test_durable_peer(peer: PeerBroker, cell: Cell, tmp_path: Path) -> None:
    check_acked(target_of(peer, tmp_path), cell)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "cell"),
    [(dialect, cell) for dialect in DIALECTS for cell in (ALL, OWN) if cell.suits(dialect)],
    ids=lambda value: value.name if isinstance(value, Cell) else value,
)
def test_polycast(dialect: str, cell: Cell) -> None:
    check(polycast_target(dialect), cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [SINGLES, BATCHES], ids=lambda cell: cell.name)
def test_polycast_with_a_log(cell: Cell, tmp_path: Path) -> None:
    check_acked(polycast_target("hermod", with_log=True, scratch=tmp_path), cell)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_cluster(tmp_path: Path) -> None:
    """Three nodes: published at one, received at another."""
    target = cluster_target("hermod", tmp_path)
    with target.start() as ports:
        running = Target(target.name, target.wire, target.version, lambda: nullcontext(ports))
        check(running, ALL)
        check_acked(running, SINGLES)
        (outcome,) = measure(CellPlan(LATENCY, [], [running])).outcomes["hermod"]
    assert outcome.published == SECONDS * RATE
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_log_on_beside_log_off(tmp_path: Path) -> None:
    for plan in plan_cells([LOGGED], {}, tmp_path):
        report = measure(plan)
        assert report.ratio(report.ours[0], "log off")
        assert report.behind_seconds("log off") == 0 < report.behind_seconds(report.ours[0])

        assert report.disk_share(report.ours[0])
        assert (report.median_stored_bytes(report.ours[0]) or 0) > LOGGED.payload_bytes


@pytest.mark.slow
def test_delays_of_deliveries(tmp_path: Path) -> None:
    (plan,) = plan_cells([OPEN], {}, tmp_path)
    report = measure(plan)
    for name in ("simplest", "log on", "relay"):
        (outcome,) = report.outcomes[name]
        assert outcome.delivered == 2 * outcome.published
        assert report.median_delays(name)
        assert report.median_sent_late(name)
    assert report.ratio("log on", "relay")


@pytest.mark.slow
def test_delays_until_durable(tmp_path: Path) -> None:
    (plan,) = plan_cells([DURABLE], {}, tmp_path)
    report = measure(plan)
    for name in ("simplest", "hermod ack"):
        assert report.median_delays(name)
        assert report.ratio(name, "fdatasync")


@pytest.mark.slow
@pytest.mark.interop
def test_a_node_catches_up(tmp_path: Path) -> None:
    report = measure_catch_up(CATCH_UP, rounds=2, scratch=tmp_path, show=show)
    assert {target: report.errors(target) for target in CATCH_UP_TARGETS} == {"node": [], "reader": []}
    assert report.ratio("node", "reader")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_replay(tmp_path: Path) -> None:
    (plan,) = plan_cells([REPLAY], {}, tmp_path)
    (outcome,) = measure(plan).outcomes["hermod"]
    assert outcome.delivered == REPLAY.stored


@pytest.mark.slow
def test_starts(tmp_path: Path) -> None:
    report = measure_starts(START, rounds=1, scratch=tmp_path, show=show)
    assert {target: report.errors(target) for target in TARGETS} == {target: [] for target in TARGETS}
    assert all(report.median_memory(target) for target in TARGETS)
    assert not list(tmp_path.iterdir())
