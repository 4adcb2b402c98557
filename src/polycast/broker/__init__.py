"""The rules of the broker, without I/O and without a clock."""

from polycast.broker.announcements import Peer, PeerTable
from polycast.broker.hub import Delivery, Hub, Publication
from polycast.broker.mesh import Mesh
from polycast.broker.requests import Requests

__all__ = ["Delivery", "Hub", "Mesh", "Peer", "PeerTable", "Publication", "Requests"]
