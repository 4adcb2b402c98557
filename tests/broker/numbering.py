"""A hub with a ledger: bursts in; positions and deliveries out, as a broker without a mesh computes them."""

from __future__ import annotations

from typing import NamedTuple

from polycast.broker import Delivery, Hub, Ledger, Mesh, Proposal
from polycast.broker.sequencer import BulkRows
from polycast.model import Burst
from polycast.routing import Subscriber, Topics


class Publication(NamedTuple):
    deliveries: list[Delivery]
    bursts: list[Burst]
    accepted: int
    refused: int = 0


def publish(mesh: Mesh, hub: Hub, ledger: Ledger, burst: Burst, origin: Subscriber, now: float) -> Publication:
    plan = mesh.plan(burst, origin, now)
    applied = ledger.apply(Proposal(plan.bursts, "source", 0))
    deliveries = plan.deliveries
    if deliveries is None:
        pairs = zip(plan.bursts, applied.topics, strict=True)
        deliveries = [each for part, topics in pairs for each in hub.deliveries(part, topics, origin)]
    return Publication(deliveries, plan.bursts, plan.accepted, plan.unreadable)


class NumberingHub(Hub):
    def __init__(self, topics: int = 1_000_000) -> None:
        super().__init__(Topics(topics))
        self.ledger = Ledger(self.router.topics)
        self._mesh = Mesh(self, "node")

    def publish(self, burst: Burst, origin: Subscriber) -> Publication:
        return publish(self._mesh, self, self.ledger, burst, origin, 0.0)

    def number_bulk(self, bulk: BulkRows) -> tuple[int, list[int]]:
        """The offset of the first row, and the first sequence of each topic."""
        applied = self.ledger.apply(Proposal((), "source", 0, bulk=bulk))
        return applied.first, applied.sequences
