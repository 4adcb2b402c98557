"""The health of a node: what it knows of the servers, the leader, the stream and the other nodes.

A leader is known while the stream responds. An election takes 4 to 9 seconds; a node without a leader for longer
is not ready, because its publishers wait. It serves its subscribers all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from polycast.cluster.peers import RecentNodes
from polycast.cluster.permissions import is_violation, to_cure
from polycast.cluster.sequencer import JetStreamSequencer
from polycast.cluster.stream import StreamInfo
from polycast.server.stats.counters import NodeTotals

KNOWN_SECONDS = 5.0
"""A response of the stream is proof of a leader for so long; the watch asks every 2 s."""
ELECTION_SECONDS = 10.0


class NodeProgress(NamedTuple):
    """Of this node: the applied stream sequence, its own proposals, and messages that no node published."""

    applied: int
    proposals: int
    pending_bytes: int
    unaccepted_seconds: float
    foreign: int
    proposed: int = 0
    """All proposals since the start."""


class ClusterHealth:
    """Implements NodeHealth."""

    def __init__(self, stream: str, last: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`last`: the last sequence of the stream, which has a leader now."""
        self.stream = stream
        self._last = last
        self._clock = clock
        self._known_at = clock()
        self.different: Collection[str] = ()
        """The nodes with other tables than this one."""
        self.is_connected: Callable[[], bool] = lambda: True
        self.last_error: Callable[[], BaseException | None] = lambda: None
        self.progress: Callable[[], NodeProgress] = lambda: NodeProgress(0, 0, 0, 0.0, 0)
        self.nodes: Callable[[], int] = lambda: 1
        self.forwarded: Callable[[], int] = lambda: 0

    @classmethod
    def of(cls, sequencer: JetStreamSequencer, recent: RecentNodes, last: int) -> ClusterHealth:
        found = cls(sequencer.stream.name, last)
        connection, proposer = sequencer.stream.connection, sequencer.proposer
        found.is_connected = lambda: connection.is_connected
        found.last_error = lambda: connection.last_error
        found.progress = lambda: NodeProgress(
            sequencer.machine.sequence,
            proposer.pending_proposals,
            proposer.pending_bytes,
            proposer.unaccepted_seconds,
            sequencer.foreign,
            sequencer.proposed,
        )
        found.nodes = lambda: len(recent.nodes()) + 1
        return found

    def note(self, info: StreamInfo) -> None:
        self._last = info.last
        if info.leader and info.confirmed:
            self._known_at = self._clock()

    def leaderless_seconds(self) -> float:
        """0 with a leader."""
        seconds = self._clock() - self._known_at
        return 0.0 if self.is_connected() and seconds < KNOWN_SECONDS else seconds

    def totals(self) -> NodeTotals:
        progress, leaderless = self.progress(), self.leaderless_seconds()
        return NodeTotals(
            cluster_nodes=self.nodes(),
            cluster_servers_connected=int(self.is_connected()),
            cluster_leader_known=int(not leaderless),
            cluster_leaderless_seconds=round(leaderless, 3),
            cluster_stream_sequence=max(self._last, progress.applied),
            cluster_applied_sequence=progress.applied,
            cluster_lag=max(0, self._last - progress.applied),
            cluster_proposals=progress.proposed,
            cluster_proposals_pending=progress.proposals,
            cluster_pending_bytes=progress.pending_bytes,
            cluster_unaccepted_seconds=round(progress.unaccepted_seconds, 3),
            cluster_diverged=int(bool(self.different)),
            cluster_messages_foreign=progress.foreign,
            cluster_requests_forwarded=self.forwarded(),
        )

    def reasons(self) -> list[str]:
        seconds, unaccepted = self.leaderless_seconds(), self.progress().unaccepted_seconds
        if seconds > ELECTION_SECONDS:
            return [f"{self.describe_loss()} for {seconds:.0f} s: publishers wait, nothing is acknowledged"]
        if unaccepted > ELECTION_SECONDS:
            return [
                f"the servers accept no message of this node for {unaccepted:.0f} s: {self._describe_refusal()}"
            ]
        return []

    def describe_loss(self) -> str:
        if self.is_connected():
            return f"the stream {self.stream} has no leader"
        return "no server of the cluster can be reached"

    def _describe_refusal(self) -> str:
        error = self.last_error()
        return to_cure(self.stream) if is_violation(error) else "they do not respond to it"

    def warnings(self) -> list[str]:
        if not self.different:
            return []
        nodes = ", ".join(sorted(self.different))
        return [f"the tables of this node and of {nodes} are different; polycast cluster verify finds where"]
