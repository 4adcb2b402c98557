"""The whole chain in small, against every broker that is here: start, drive, count every byte, stop."""

from __future__ import annotations

import pytest

from polycast.bench.cells import Cell
from polycast.bench.rounds import measure_cell
from polycast.bench.targets import PEERS, Peer, Target, peer_target, polycast_target
from polycast.bench.wires import DIALECTS

ALL = Cell("small", "3 topics x 4 subscribers", topics=3, subscribers=4)
OWN = Cell("small-own", "4 topics, a subscriber each", topics=4, subscribers=4, spread="own")
SECONDS = 0.2


def check(target: Target, cell: Cell) -> None:
    report = measure_cell(cell, [target], rounds=1, seconds=SECONDS, show=lambda cell, target: None)
    assert report.errors(target.name) == []
    (outcome,) = report.outcomes[target.name]
    assert outcome.delivered == outcome.published // cell.topics * cell.deliveries_per_cycle > 0


@pytest.mark.interop
@pytest.mark.parametrize("cell", [ALL, OWN], ids=lambda cell: cell.name)
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peer(peer: Peer, cell: Cell) -> None:
    target = peer_target(peer)
    if target is None:
        pytest.skip(f"{peer.program} is not installed: {peer.cure}")
    check(target, cell)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "cell"),
    [(dialect, cell) for dialect in DIALECTS for cell in (ALL, OWN) if cell.suits(dialect)],
    ids=lambda value: value.name if isinstance(value, Cell) else value,
)
def test_polycast(dialect: str, cell: Cell) -> None:
    check(polycast_target(dialect), cell)
