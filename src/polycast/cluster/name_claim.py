"""The claim of a node to its name, while it runs: of two nodes with one name, exactly one goes on.

NAME.name.NODE    {"id", "established"}, from each node when it starts, and once a second

A node that serves comes before one that starts; among equals, the lower id does. A node that comes first sends its
own claim again, and the other stops. A node that has lost its name must not begin to serve: its claim would come
first, and the winner would stop, too. The request when a node starts is not enough: two nodes that start together
do not find each other, and neither do nodes at both sides of a partition.
"""

from __future__ import annotations

import logging
import secrets

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from polycast.cluster.peers import respond_to
from polycast.cluster.stream import Stream
from polycast.errors import ClusterError, StartError

log = logging.getLogger("polycast.cluster")

CLAIM_SECONDS = 1.0
HINT = "--node NAME: each node has its own name"


class Claim(msgspec.Struct, frozen=True):
    id: str
    established: bool = False

    def comes_before(self, other: Claim) -> bool:
        return (not self.established, self.id) < (not other.established, other.id)


class NameClaim:
    def __init__(self, stream: Stream, node: str) -> None:
        self._stream = stream
        self._node = node
        self.own = Claim(secrets.token_hex(8))
        self._lost = False

    async def start(self) -> None:
        """Raises StartError if a node with this name runs."""
        other = await self._request()
        if other and other.comes_before(self.own):
            raise StartError(f"a node with the name {self._node} runs already", HINT)
        await self._stream.subscribe(f"name.{self._node}", self._on_claim)
        await self.send()

    async def _request(self) -> Claim | None:
        """The claim of another node; None at once if there is no other."""
        subject, body = f"{self._stream.name}.name.{self._node}", msgspec.json.encode(self.own)
        try:
            response = await self._stream.connection.request(subject, body, timeout=CLAIM_SECONDS)
            return msgspec.json.decode(response.data, type=Claim)
        except (NatsError, OSError, msgspec.MsgspecError):
            return None

    def establish(self) -> None:
        """This node serves. Raises ClusterError if another node has the name."""
        self.check()
        self.own = Claim(self.own.id, True)

    async def send(self) -> None:
        await self._stream.broadcast(f"name.{self._node}", self.own)

    async def _on_claim(self, message: Msg) -> None:
        try:
            other = msgspec.json.decode(message.data, type=Claim)
        except msgspec.MsgspecError:
            log.debug("a claim to the name of this node cannot be read")
            return
        wins = self.meet(other)
        if message.reply:
            await respond_to(message, msgspec.json.encode(self.own))
        elif wins:
            await self.send()

    def meet(self, other: Claim) -> bool:
        """Whether the other node must hear of this one."""
        if other.id == self.own.id or self._lost:
            return False
        self._lost = other.comes_before(self.own)
        return not self._lost

    def check(self) -> None:
        """Raises ClusterError if another node has the name."""
        if self._lost:
            text = f"another node with the name {self._node} runs, and this one stops"
            raise ClusterError(text, HINT)
