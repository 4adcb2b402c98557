"""Requests and listings across nodes, over core NATS.

    NAME.offers         a route: every node responds with its number of connections that serve the route
    NAME.request.NODE   a request for a route that a connection of NODE serves
    NAME.list.NODE      polycast/connections, stats, topics or close, for NODE alone

A node prefers its own connections that serve a route. Without any, it sends the route to all nodes and chooses one
at random, weighted by the number of connections. The node of the requester checks rights, and only that node. The
node of the responder checks the limits of open requests, by connection and identity: it gets the requests of all
nodes. If that node is lost, the requester gets `Gone`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from polycast.broker import requests
from polycast.cluster.peers import RecentNodes, gather, respond_to
from polycast.cluster.stream import Stream
from polycast.cluster.tasks import end_tasks
from polycast.errors import PolycastError
from polycast.model import Body, Format
from polycast.server.api.routes import CloseRequest, Routes
from polycast.server.core import Core
from polycast.server.dispatch.bodies import RouteError, read_request
from polycast.server.dispatch.request_handler import Requester, Respond

OFFER_SECONDS = 0.5
LIST_SECONDS = 2.0
MARGIN_SECONDS = 2.0
"""The other node enforces the time limit of requests and sends the timeout; this node waits longer."""
LOSS_SECONDS = 0.5
"""How often open requests are compared with the nodes that run."""
OPEN_AT_MOST = 10_000
OPEN_SHARE = OPEN_AT_MOST // requests.SHARE
"""Open requests to other nodes of one connection, or of all connections of one identity with limited rights."""
CONNECTIONS, STATS, CLOSE = "polycast/connections", "polycast/stats", "polycast/close"
TOPICS = "polycast/topics"


T = TypeVar("T")


class NodeLostError(Exception):
    """The node of a request has ended, or cannot be reached."""


class Offer(msgspec.Struct, frozen=True):
    node: str
    responders: int
    instance: str


class NodeRequest(msgspec.Struct, frozen=True, array_like=True):
    route: str
    payload: bytes
    format: Format
    requester: Requester = Requester("", "", False)


class NodeResponse(msgspec.Struct, frozen=True, array_like=True):
    success: bool
    payload: bytes
    format: Format


class ClusterRequests:
    def __init__(self, stream: Stream, core: Core, recent: RecentNodes) -> None:
        self._stream = stream
        self._core = core
        self._recent = recent
        self._handler = core.request_handler
        self._routes = Routes(core)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open: Counter[str] = Counter()
        """Requests to other nodes without a response, by connection or identity."""
        self._waiting: dict[asyncio.Future[None], Offer] = {}
        """Done when the node of the offer is lost."""

    async def start(self) -> None:
        node, subscribe = self._core.node, self._stream.subscribe
        await subscribe("offers", self._on_offers)
        await subscribe(f"request.{node}", self._on_request)
        await subscribe(f"list.{node}", self._on_list)
        self._handler.elsewhere = self._request
        self._later(self._watch_losses())
        self._core.cluster_routes |= {
            CONNECTIONS: self._connections, STATS: self._stats, CLOSE: self._close, TOPICS: self._topics,
        }  # fmt: skip

    def count_open(self) -> int:
        """Requests to other nodes without a response."""
        return self._open.total()

    async def stop(self) -> None:
        await end_tasks(self._tasks)

    def _later(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- requests of own clients -------------------------------------------------------------------------

    def _request(self, route: str, body: Body, requester: Requester, respond: Respond) -> None:
        share = requester.shared_identity or requester.connection
        if self.count_open() >= OPEN_AT_MOST or self._open[share] >= OPEN_SHARE:
            respond(False, requests.text_body(requests.BUSY))
        else:
            self._open[share] += 1
            self._later(self._forward(route, body, requester, respond, share))

    async def _forward(self, route: str, body: Body, requester: Requester, respond: Respond, share: str) -> None:
        try:
            success, response = await self._request_other(route, body, requester)
        finally:
            self._open[share] -= 1
            if not self._open[share]:
                del self._open[share]
        respond(success, response)
        self._core.outbox.flush()

    async def _request_other(self, route: str, body: Body, requester: Requester) -> tuple[bool, Body]:
        offer = await self._choose(route)
        if offer is None:
            return False, requests.text_body(requests.NOT_FOUND)
        request = msgspec.msgpack.encode(NodeRequest(route, body.payload, body.format, requester))
        try:
            reply = await self._await_reply(offer, request)
        except NodeLostError:
            return False, requests.text_body(requests.GONE)
        except MaxPayloadError:
            return False, requests.text_body(f"TooLarge: {len(request):,} bytes are too large for another node")
        except NatsTimeoutError:
            return False, requests.text_body(requests.TIMEOUT)
        except (NoRespondersError, NatsError, OSError):
            return False, requests.text_body(requests.GONE)
        response = msgspec.msgpack.decode(reply.data, type=NodeResponse)
        return response.success, Body(response.payload, response.format)

    async def _await_reply(self, offer: Offer, request: bytes) -> Msg:
        """A request whose node is lost is not cancelled: nats-py would not forget it. It ends with its time
        limit."""
        seconds = self._core.settings.ubre.request_seconds + MARGIN_SECONDS
        subject = f"{self._stream.name}.request.{offer.node}"
        replied = self._later(self._stream.connection.request(subject, request, timeout=seconds))
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[lost] = offer
        try:
            await asyncio.wait((replied, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[lost]
        if not replied.done():
            replied.add_done_callback(_retrieve)
            raise NodeLostError
        return replied.result()

    async def _watch_losses(self) -> None:
        while True:
            await asyncio.sleep(LOSS_SECONDS)
            for lost, offer in self._waiting.items():
                other = offer.node != self._core.node
                if other and not lost.done() and self._recent.has_lost(offer.node, offer.instance):
                    lost.set_result(None)

    async def _choose(self, route: str) -> Offer | None:
        found = await gather(self._stream, "offers", route.encode(), OFFER_SECONDS, self._recent.expected())
        offers = [msgspec.json.decode(each, type=Offer) for each in found]
        for offer in offers:
            if offer.node != self._core.node:
                self._recent.note(offer.node, offer.instance)
        weights = [offer.responders for offer in offers]
        return random.choices(offers, weights)[0] if any(weights) else None

    # -- requests of other nodes -------------------------------------------------------------------------

    async def _on_offers(self, message: Msg) -> None:
        count = self._core.requests.count_responders(message.data.decode(errors="replace"))
        await respond_to(message, msgspec.json.encode(Offer(self._core.node, count, self._recent.instance)))

    async def _on_request(self, message: Msg) -> None:
        request = msgspec.msgpack.decode(message.data, type=NodeRequest)
        body = Body(request.payload, request.format)

        def respond(success: bool, response: Body) -> None:
            self._later(self._send(message, success, response))

        self._handler.request_for_other(request.route, body, request.requester, respond)

    async def _send(self, message: Msg, success: bool, body: Body) -> None:
        try:
            await respond_to(message, msgspec.msgpack.encode(NodeResponse(success, body.payload, body.format)))
        except MaxPayloadError:
            text = f"TooLarge: the response has {len(body.payload):,} bytes, too large for another node"
            await respond_to(message, msgspec.msgpack.encode(NodeResponse(False, text.encode(), Format.TEXT)))

    # -- listings ----------------------------------------------------------------------------------------

    async def _connections(self, body: Body) -> Any:
        found = await self._list(CONNECTIONS, body)
        rows = [{**row, "node": node} for node, listed in found.items() for row in listed["connections"]]
        total = sum(listed["total"] for listed in found.values())
        return {"node": self._core.node, "total": total, "connections": rows}

    async def _topics(self, body: Body) -> Any:
        """The topics of this node, with the subscribers of all nodes: the total, and under `nodes` for each."""
        found = await self._list(TOPICS, body)
        subscribers: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for node, listed in found.items():
            for row in listed["topics"]:
                if row["subscribers"]:
                    subscribers[row["topic"]][node] = row["subscribers"]
        own = found[self._core.node]
        rows = [{**row, **_to_subscribers(subscribers[row["topic"]])} for row in own["topics"]]
        return {"node": self._core.node, **own, "topics": rows}

    async def _stats(self, body: Body) -> Any:
        """The counters of this node, and under `nodes` the totals of all."""
        found = await self._list(STATS, body)
        own = found[self._core.node]
        totals = [
            {"node": node, **{key: value for key, value in stats.items() if isinstance(value, int | float)}}
            for node, stats in found.items()
        ]
        return {**own, "node": self._core.node, "nodes": totals}

    async def _close(self, body: Body) -> Any:
        node = read_request(body, CloseRequest).name.partition("#")[0]
        if node == self._core.node or node not in self._recent.nodes():
            return await self._routes.list_here(CLOSE, body)
        return await self._list_of(node, CLOSE, body)

    async def _list(self, route: str, body: Body) -> dict[str, Any]:
        """The listings of all nodes, by node. Nodes that do not respond are left out."""
        own = await self._routes.list_here(route, body)
        others = sorted(self._recent.nodes())
        found = await asyncio.gather(
            *(self._list_of(node, route, body) for node in others), return_exceptions=True
        )
        pairs = zip(others, found, strict=True)
        return {self._core.node: own} | {node: each for node, each in pairs if not isinstance(each, BaseException)}

    async def _list_of(self, node: str, route: str, body: Body) -> Any:
        request = msgspec.msgpack.encode(NodeRequest(route, body.payload, body.format))
        try:
            subject = f"{self._stream.name}.list.{node}"
            reply = await self._stream.connection.request(subject, request, timeout=LIST_SECONDS)
        except (NatsError, OSError) as error:
            raise RouteError(f"Gone: the node {node} does not respond") from error
        response = msgspec.msgpack.decode(reply.data, type=NodeResponse)
        if not response.success:
            raise RouteError(response.payload.decode())
        return msgspec.json.decode(response.payload)

    async def _on_list(self, message: Msg) -> None:
        request = msgspec.msgpack.decode(message.data, type=NodeRequest)
        try:
            found = await self._routes.list_here(request.route, Body(request.payload, request.format))
            body = requests.json_body(found)
            await self._send(message, True, body)
        except (RouteError, PolycastError) as error:
            await self._send(message, False, requests.text_body(str(error)))


def _to_subscribers(by_node: dict[str, int]) -> dict[str, Any]:
    return {"subscribers": sum(by_node.values()), "nodes": by_node}


def _retrieve(task: asyncio.Task[Msg]) -> None:
    """The outcome of a request that got its response already."""
    if not task.cancelled():
        task.exception()
