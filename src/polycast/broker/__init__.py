"""The rules of the broker, without I/O and without a clock."""

from polycast.broker.announcements import Peer, PeerTable
from polycast.broker.hub import Delivery, Hub
from polycast.broker.mesh import Mesh, Plan
from polycast.broker.requests import Requests
from polycast.broker.sequencer import (
    Applied,
    ClusterSequencer,
    Ledger,
    LocalSequencer,
    Proposal,
    Sequencer,
    StagedFrame,
)

__all__ = [
    "Applied",
    "ClusterSequencer",
    "Delivery",
    "Hub",
    "Ledger",
    "LocalSequencer",
    "Mesh",
    "Peer",
    "PeerTable",
    "Plan",
    "Proposal",
    "Requests",
    "Sequencer",
    "StagedFrame",
]
