"""Compares the chain of this node with the chains of other nodes.

Nodes with different chains at the same stream sequence have different tables. The status that nodes send finds a
difference. Which nodes agree with each other is decided from their chains at one and the same sequence.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from polycast.cluster.peers import NodeStatus

REMEMBERED = 50_000
"""The chains of the last messages, to compare with nodes that are behind."""


class ChainComparison:
    def __init__(self, sequence: int, chain: str) -> None:
        """Where this node starts."""
        self._chains: OrderedDict[int, str] = OrderedDict({sequence: chain})
        self._claims: dict[str, NodeStatus] = {}
        """The status of nodes that are ahead; compared when this node has applied that sequence."""
        self._latest: dict[str, int] = {}
        self._agrees: dict[str, bool] = {}

    @property
    def sequence(self) -> int:
        return next(reversed(self._chains))

    def note(self, sequence: int, chain: str) -> None:
        self._chains[sequence] = chain
        if len(self._chains) > REMEMBERED:
            self._chains.popitem(last=False)
        for claim in [claim for claim in self._claims.values() if claim.sequence <= sequence]:
            self._compare(claim)

    def add(self, claim: NodeStatus) -> None:
        self._latest[claim.node] = claim.sequence
        self._claims.setdefault(claim.node, claim)
        self._compare(claim)

    def _compare(self, claim: NodeStatus) -> None:
        own = self._chains.get(claim.sequence)
        if own is not None:
            self._agrees[claim.node] = own == claim.chain
        if claim.sequence <= self.sequence:
            self._claims.pop(claim.node, None)

    def forget_all_but(self, nodes: AbstractSet[str]) -> None:
        """A node that has gone has no vote."""
        for node in {*self._claims, *self._latest, *self._agrees} - nodes:
            self._claims.pop(node, None)
            self._latest.pop(node, None)
            self._agrees.pop(node, None)

    def votes(self) -> tuple[set[str], set[str]]:
        """The nodes with the same chain as this node, and the nodes with another."""
        agree = {node for node, same in self._agrees.items() if same}
        return agree, set(self._agrees) - agree

    def common(self) -> int:
        """A sequence that all nodes have applied, as far as this node knows."""
        lowest = min([self.sequence, *self._latest.values()])
        return max(lowest, next(iter(self._chains)))

    def at(self, status: NodeStatus, sequence: int) -> NodeStatus | None:
        """The status of this node as of that sequence, or of the last one if it is behind; None: forgotten."""
        sequence = min(sequence, self.sequence)
        chain = self._chains.get(sequence)
        return msgspec.structs.replace(status, sequence=sequence, chain=chain) if chain is not None else None

    def is_outvoted(self, claims: Sequence[NodeStatus], nodes: int) -> bool:
        """Whether more than half of the nodes have one and the same chain, which is not that of this node.

        `nodes`: all that are known to run, this one included. Nodes that have not responded have no vote, but they
        count: without a majority nobody stops."""
        groups = Counter(
            (claim.sequence, claim.chain)
            for claim in claims
            if self._chains.get(claim.sequence, claim.chain) != claim.chain
        )
        return 2 * max(groups.values(), default=0) > max(nodes, len(claims) + 1)
