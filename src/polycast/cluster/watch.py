"""The watch of a node: sends the status of the node, compares it with that of other nodes, and checks that the
stream is still the one that was applied.

Once a second every node sends its stream sequence and its chain. Nodes with different chains at the same sequence
have different tables: the nodes of the minority stop. Without a majority on either side, all nodes continue and
log an alarm.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from nats.aio.msg import Msg

from polycast.cluster.copying import FileRange, digest_range, list_files, read_range
from polycast.cluster.health import ClusterHealth
from polycast.cluster.joining import RESTORE, Joined
from polycast.cluster.peers import NodeStatus, RecentNodes, collect, respond_to
from polycast.cluster.requests import ClusterRequests
from polycast.cluster.sequencer import JetStreamSequencer
from polycast.cluster.stream import ApiError, StreamInfo
from polycast.cluster.tables import DigestRequest, compare_tables, digests_of, range_of
from polycast.cluster.tasks import end_tasks
from polycast.errors import ClusterError, PolycastError
from polycast.model import Body
from polycast.server.dispatch.bodies import NoFields, read_request
from polycast.server.server import Server

log = logging.getLogger("polycast.cluster")

GOSSIP_SECONDS = 1.0
CHECK_SECONDS = 2.0
LEAVE_SECONDS = 0.1
STATUS_SECONDS = 1.0
"""How long a status waits for the stream: without a leader, it does not respond."""
REMEMBERED = 50_000
"""The chains of the last messages, to compare with nodes that are behind."""


class Watch:
    def __init__(self, sequencer: JetStreamSequencer, joined: Joined, server: Server) -> None:
        self._sequencer = sequencer
        self._stream = sequencer.stream
        self._id = joined.info.id
        self._log = joined.log
        self._server = server
        self.comparison = ChainComparison(sequencer.node)
        self._recent = RecentNodes()
        self._requests = ClusterRequests(sequencer.stream, server.core, self._recent)
        self._health = ClusterHealth.of(sequencer, self._recent, joined.info.last)
        self._health.forwarded = self._requests.count_open
        server.core.node_health = self._health
        self._tasks: list[asyncio.Task[None]] = []
        sequencer.on_applied.append(self._note)
        server.core.cluster_routes |= {
            "polycast/cluster": self._describe,
            "polycast/cluster/verify": self._verify,
            "polycast/cluster/leave": self._leave,
        }

    async def __aenter__(self) -> Watch:
        node, subscribe = self._sequencer.node, self._stream.subscribe
        await subscribe("gossip", self._on_gossip)
        await subscribe("nodes", self._on_status)
        await subscribe(f"node.{node}.*", self._on_request)
        await self._requests.start()
        self._tasks = [asyncio.create_task(self._gossip()), asyncio.create_task(self._check())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_tasks(self._tasks)
        await self._requests.stop()

    # -- comparing chains --------------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        sequencer, core = self._sequencer, self._server.core
        state = "ready" if core.opened_listeners else "starting"
        machine = sequencer.machine
        return NodeStatus(
            sequencer.node, state, core.ledger.next_offset, machine.sequence, machine.chain, self._id,
            first=machine.first, connections=len(core.connections),
        )  # fmt: skip

    async def _describe(self, body: Body) -> Any:
        """{"stream": {...}, "nodes": [...]}, for `polycast cluster status`."""
        read_request(body, NoFields)
        others, info = await asyncio.gather(
            collect(self._stream, enough=len(self._recent.nodes()) + 1), self._info()
        )
        nodes = with_own(self.status(), others)
        last = info.last if info else max(status.sequence for status in nodes)
        stream: dict[str, Any] = {
            "name": self._stream.name,
            "leader": None,
            "replicas": [],
            "first": None,
            "last": None,
        }
        if info is None or not info.leader:
            stream["error"] = f"{self._health.describe_loss()}: publishers wait, nothing is acknowledged"
        if info:
            replicas = sorted({info.leader, *info.replicas} - {""})
            stream |= {"leader": info.leader or None, "replicas": replicas, "first": info.first, "last": info.last}
        rows = [
            {
                "node": each.node, "state": each.state, "offset": each.offset, "sequence": each.sequence,
                "chain": each.chain, "lag": max(0, last - each.sequence), "first": each.first,
                "connections": each.connections,
            }
            for each in nodes
        ]  # fmt: skip
        return {"stream": stream, "nodes": rows}

    async def _verify(self, body: Body) -> Any:
        read_request(body, NoFields)
        return await compare_tables(self._stream)

    async def _leave(self, body: Body) -> Any:
        """Stops this node cleanly, after the response."""
        read_request(body, NoFields)
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, os.kill, os.getpid(), signal.SIGTERM)
        return {"node": self._sequencer.node, "folder": str(self._log.folder.parent)}

    async def _info(self) -> StreamInfo | None:
        if not self._stream.connection.is_connected:
            return None
        try:
            return await self._stream.info(STATUS_SECONDS)
        except ApiError:
            return None

    def _note(self, sequence: int, chain: str) -> None:
        self.comparison.note(sequence, chain)

    async def _gossip(self) -> None:
        while True:
            await self._stream.broadcast("gossip", self.status())
            self._sequencer.propose_retention()
            self._judge()
            await asyncio.sleep(GOSSIP_SECONDS)

    async def _on_gossip(self, message: Msg) -> None:
        status = msgspec.json.decode(message.data, type=NodeStatus)
        if status.node != self._sequencer.node:
            self._recent.note(status.node)
        if status.stream == self._id and status.node != self._sequencer.node:
            self.comparison.add(status)

    def _judge(self) -> None:
        agree, differ = self.comparison.votes()
        self._health.different = differ
        if not differ:
            return
        log.critical("the tables of this node and of %s are different; polycast cluster verify finds the first "
                     "difference", ", ".join(sorted(differ)))  # fmt: skip
        if len(differ) > len(agree) + 1:
            hint = "its files stay; move the folder away, and the node copies the log of another one"
            self._sequencer.fail(ClusterError("this node differs from the majority of the nodes, and stops", hint))

    # -- the stream --------------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Checks twice before the node stops: a server that has just lost the leadership may have older data."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            wrong = await self._find_wrong()
            if wrong and await self._find_wrong():
                hint = f"nothing was changed; {RESTORE} creates a new stream from the longest log"
                self._sequencer.fail(ClusterError(wrong, hint))

    async def _find_wrong(self) -> str:
        applied = self._sequencer.machine.sequence  # read first: the stream grows meanwhile
        try:
            info = await self._stream.info()
        except ApiError as error:
            log.debug("the stream does not respond: %s", error)
            return ""
        except PolycastError as error:
            return str(error)
        if info is None:
            return f"the stream {self._stream.name} is gone"
        self._health.note(info)
        if info.id != self._id:
            return f"{info.id!r} is not the stream that this node has applied ({self._id!r})"
        if info.last < applied:
            return f"the stream ends at message {info.last:,}, and this node has applied {applied:,}"
        return ""

    # -- requests of other nodes -------------------------------------------------------------------------

    async def _on_status(self, message: Msg) -> None:
        await respond_to(message, msgspec.json.encode(self.status()))

    async def _on_request(self, message: Msg) -> None:
        op = message.subject.rpartition(".")[2]
        try:
            await respond_to(message, await self._respond(op, message.data))
        except (OSError, msgspec.MsgspecError, PolycastError, KeyError) as error:
            await respond_to(message, b"", {"Error": str(error) or type(error).__name__})

    async def _respond(self, op: str, data: bytes) -> bytes:
        folder: Path = self._log.folder
        if op == "status":
            return msgspec.json.encode(self.status())
        if op == "files":
            return msgspec.json.encode(await asyncio.to_thread(list_files, folder))
        if op in ("read", "digest"):
            wanted = msgspec.json.decode(data, type=FileRange)
            if op == "read":
                return await asyncio.to_thread(read_range, folder, wanted)
            return msgspec.json.encode(await asyncio.to_thread(digest_range, folder, wanted))
        if op == "table":
            first = self._sequencer.machine.first
            return msgspec.json.encode(await asyncio.to_thread(range_of, folder, self._log.durable_next, first))
        if op == "digests":
            steps = msgspec.json.decode(data, type=DigestRequest)
            return msgspec.json.encode(await asyncio.to_thread(digests_of, folder, steps))
        raise KeyError(f"unknown request {op}")


def with_own(own: NodeStatus, found: list[NodeStatus]) -> list[NodeStatus]:
    """Without a connection to a server, a node does not receive even its own status."""
    others = [status for status in found if status.node != own.node]
    return sorted([own, *others], key=lambda status: status.node)


class ChainComparison:
    """The chains of this node, compared with those of other nodes."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._chains: OrderedDict[int, str] = OrderedDict()
        self._claims: dict[str, NodeStatus] = {}
        """The status of nodes that are ahead; compared when this node has applied that sequence."""
        self._agrees: dict[str, bool] = {}

    def note(self, sequence: int, chain: str) -> None:
        self._chains[sequence] = chain
        if len(self._chains) > REMEMBERED:
            self._chains.popitem(last=False)
        for claim in [claim for claim in self._claims.values() if claim.sequence <= sequence]:
            self._compare(claim)

    def add(self, claim: NodeStatus) -> None:
        self._claims.setdefault(claim.node, claim)
        self._compare(claim)

    def _compare(self, claim: NodeStatus) -> None:
        own = self._chains.get(claim.sequence)
        if own is not None:
            self._agrees[claim.node] = own == claim.chain
        if claim.sequence <= next(reversed(self._chains), 0):
            self._claims.pop(claim.node, None)

    def votes(self) -> tuple[set[str], set[str]]:
        """The nodes with the same chain as this node, and the nodes with another."""
        agree = {node for node, same in self._agrees.items() if same}
        return agree, set(self._agrees) - agree
