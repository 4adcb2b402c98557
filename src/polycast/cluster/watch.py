"""The watch of a node: sends the status of the node, compares it with that of other nodes, and checks that the
stream is still the one that was applied.

Once a second every node sends its stream sequence and its chain. Nodes with different chains at the same sequence
have different tables: a node stops if more than half of all nodes have one and the same other chain. Without such
a majority, all nodes continue and log an alarm. A node that starts compares its chain before it serves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from nats.aio.msg import Msg

from polycast.cluster.comparison import ChainComparison
from polycast.cluster.copying import FileRange, digest_range, list_files, read_range
from polycast.cluster.divergence import DivergenceMark, mark_divergence
from polycast.cluster.health import ClusterHealth
from polycast.cluster.joining import RESTORE, Joined
from polycast.cluster.name_claim import NameClaim
from polycast.cluster.peers import NodeStatus, RecentNodes, collect, gather, read_statuses, respond_to
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
CONFIRM_SECONDS = 5.0
"""Between two checks of a stream that seems to be lost: servers may elect a leader meanwhile."""
CHAINS_SECONDS = 0.5
ALARM_SECONDS = 60.0


class Watch:
    def __init__(self, sequencer: JetStreamSequencer, joined: Joined, server: Server, claim: NameClaim) -> None:
        self._sequencer = sequencer
        self._stream = sequencer.stream
        self._id = joined.info.id
        self._log = joined.log
        self._server = server
        self._claim = claim
        self.comparison = ChainComparison(sequencer.machine.sequence, sequencer.machine.chain)
        self._alarmed: tuple[set[str], float] = (set(), 0.0)
        self._recent = RecentNodes()
        self._requests = ClusterRequests(sequencer.stream, server.core, self._recent)
        self._health = ClusterHealth.of(sequencer, self._recent, joined.info.last)
        self._health.forwarded = self._requests.count_open
        server.core.node_health = self._health
        self._tasks: list[asyncio.Task[None]] = []
        sequencer.on_applied.append(self.comparison.note)
        sequencer.before_serving.append(self._check_start)
        server.core.cluster_routes |= {
            "polycast/cluster": self._describe,
            "polycast/cluster/verify": self._verify,
            "polycast/cluster/leave": self._leave,
        }

    async def __aenter__(self) -> Watch:
        node, subscribe = self._sequencer.node, self._stream.subscribe
        await subscribe("gossip", self._on_gossip)
        await subscribe("nodes", self._on_status)
        await subscribe("chains", self._on_chain)
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
            first=machine.first, connections=len(core.connections), instance=self._recent.instance,
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
        leader = info.leader if info and info.confirmed else ""
        if not leader:
            stream["error"] = f"{self._health.describe_loss()}: publishers wait, nothing is acknowledged"
        if info:
            replicas = sorted({info.leader, *info.replicas} - {""})
            stream |= {"leader": leader or None, "replicas": replicas, "first": info.first, "last": info.last}
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

    async def _gossip(self) -> None:
        while True:
            await self._stream.broadcast("gossip", self.status())
            await self._claim.send()
            self._sequencer.propose_retention()
            try:
                await self._judge()
                self._claim.check()
            except ClusterError as error:
                self._sequencer.fail(error)
            await asyncio.sleep(GOSSIP_SECONDS)

    async def _on_gossip(self, message: Msg) -> None:
        status = msgspec.json.decode(message.data, type=NodeStatus)
        if status.node != self._sequencer.node:
            self._recent.note(status.node, status.instance)
        if status.stream == self._id and status.node != self._sequencer.node:
            self.comparison.add(status)

    async def _check_start(self) -> None:
        """Before the node serves. Raises ClusterError."""
        await self._compare_at(self.comparison.sequence)
        self._claim.establish()

    async def _judge(self) -> None:
        """Raises DivergedError."""
        self.comparison.forget_all_but(self._recent.nodes())
        _, differ = self.comparison.votes()
        self._health.different = differ
        if differ:
            self._alarm(differ)
            await self._compare_at(self.comparison.common())

    def _alarm(self, differ: set[str]) -> None:
        before, at = self._alarmed
        if differ != before or time.monotonic() > at + ALARM_SECONDS:
            self._alarmed = differ, time.monotonic()
            log.critical("the tables of this node and of %s are different; polycast cluster verify finds the "
                         "first difference", ", ".join(sorted(differ)))  # fmt: skip

    async def _compare_at(self, sequence: int) -> None:
        """Requests the chains of all nodes at one sequence. Raises DivergedError if this node is outvoted."""
        found = await gather(self._stream, "chains", msgspec.json.encode(sequence), CHAINS_SECONDS)
        claims = [
            each for each in read_statuses(found) if each.stream == self._id and each.node != self._sequencer.node
        ]
        for claim in claims:
            self._recent.note(claim.node, claim.instance)
            self.comparison.add(claim)
        _, differ = self.comparison.votes()
        if self.comparison.is_outvoted(claims, len(self._recent.nodes()) + 1):
            self._alarm(differ)
            own = self.comparison.at(self.status(), sequence)
            mark = DivergenceMark(sequence, own.chain if own else "", sorted(differ))
            raise mark_divergence(self._log.folder, mark)

    async def _on_chain(self, message: Msg) -> None:
        try:
            wanted = msgspec.json.decode(message.data, type=int)
        except msgspec.MsgspecError:
            return
        if own := self.comparison.at(self.status(), wanted):
            await respond_to(message, msgspec.json.encode(own))

    # -- the stream --------------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Checks twice before the node stops, with time for an election in between: a server that has just lost
        the leadership may have older data."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not await self._find_wrong():
                continue
            await asyncio.sleep(CONFIRM_SECONDS)
            if wrong := await self._find_wrong():
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
        if not info.confirmed:
            return ""
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
