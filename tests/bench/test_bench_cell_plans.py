"""Which targets are compared in a cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from polycast.bench.cells import choose_cells
from polycast.bench.rounds import CellPlan, plan_cells
from polycast.bench.targets import PEERS, Target, polycast_command

HERE = {name: Target(name, "nats", "1", lambda: pytest.fail("not to be started")) for name in ("nats", "js-lazy")}


def plans(*cells: str) -> list[CellPlan]:
    return list(plan_cells(choose_cells(cells), HERE, None))


def names(targets: list[Target]) -> list[str]:
    return [target.name for target in targets]


def test_a_cell_is_compared_with_its_installed_peers() -> None:
    live, acked = plans("16B", "acked")
    assert (names(live.ours), names(live.others)) == (["simplest"], ["nats"])
    assert (names(acked.ours), names(acked.others)) == (["hermod"], ["js-lazy"])


def test_a_logged_cell_compares_the_log_on_and_off() -> None:
    simplest, hermod = plans("logged-1:100")
    assert (names(simplest.ours), names(simplest.others)) == (["simplest"], ["log off", "disk"])
    assert (names(hermod.ours), names(hermod.others)) == (["hermod"], ["log off", "disk"])
    assert [target.wire for target in hermod.targets] == ["hermod", "hermod", "disk"]
    assert hermod.cell.dialects == ("hermod",)


def test_large_messages_in_the_log_are_also_beside_a_peer() -> None:
    found = plans("logged-16KiB")
    assert [names(plan.ours) for plan in found] == [["simplest"], ["hermod"], ["nanomsg"], ["fanout"]]
    assert {tuple(names(plan.others)) for plan in found} == {("log off", "nats", "disk")}


def test_delays_with_the_log_off_and_on_are_beside_the_peers() -> None:
    (plan,) = plans("open-50k:10")
    assert (names(plan.ours), names(plan.others)) == (["simplest", "log on"], ["nats", "relay"])


def test_delays_until_durable_are_beside_one_fdatasync() -> None:
    (plan,) = plans("durable")
    assert (names(plan.ours), names(plan.others)) == (["simplest", "hermod ack"], ["fdatasync"])


def test_turns() -> None:
    found = plans("acked", "replay", "start", "cluster-catch-up")
    assert [plan.turns for plan in found] == [2, 1, 3, 2]


def test_every_peer_of_a_cell_is_known() -> None:
    known = {peer.name for peer in PEERS}
    assert {name for cell in choose_cells(None) for name in cell.peers} == known


def test_with_and_without_a_log() -> None:
    assert "--no-log" in polycast_command(["simplest", "simplest"], None)
    command = polycast_command(["hermod.sub", "hermod.pub"], Path("/data"))
    assert command[-6:] == [
        "--data",
        "/data",
        "--listen",
        "hermod.pub=tcp://127.0.0.1:0",
        "--listen",
        "hermod.sub=tcp://127.0.0.1:0",
    ]
