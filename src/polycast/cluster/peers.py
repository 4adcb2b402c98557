"""Requests between nodes, over core NATS: it works without a majority of the servers.

NAME.gossip            each node, once a second: NodeStatus
NAME.nodes             requests the status of all nodes
NAME.node.NODE.OP      a request to one node
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.errors import TimeoutError as NatsTimeoutError

from polycast.cluster.stream import Stream
from polycast.errors import ClusterError

log = logging.getLogger("polycast.cluster")

RECENT_SECONDS = 3.5
COMPLETE_SECONDS = 2.5
"""After this time every other running node has sent its status."""
REQUEST_SECONDS = 10.0
COLLECT_SECONDS = 1.0


class NodeStatus(msgspec.Struct, frozen=True):
    node: str
    state: str
    """"starting" or "ready"."""
    offset: int
    """The next offset of its log."""
    sequence: int
    """The stream sequence that the node has applied."""
    chain: str
    stream: str
    """The id of the stream."""
    first: int = 0
    """Retention: all nodes remove the offsets below this one."""
    connections: int = 0
    instance: str = ""
    """Of the process: another one after each start."""


async def request_node(
    stream: Stream, node: str, op: str, body: Any = None, seconds: float = REQUEST_SECONDS
) -> bytes:
    """Raises ClusterError if the node does not respond, or refuses."""
    try:
        subject = f"{stream.name}.node.{node}.{op}"
        response: Msg = await stream.connection.request(subject, msgspec.json.encode(body), timeout=seconds)
    except (NatsError, OSError) as error:
        raise ClusterError(f"the node {node} does not respond: {error or type(error).__name__}") from error
    if response.headers and "Error" in response.headers:
        raise ClusterError(f"the node {node} refuses {op}: {response.headers['Error']}")
    return bytes(response.data)


class RecentNodes:
    """The other nodes that sent their status in the last seconds."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._instances: dict[str, str] = {}
        self._began = time.monotonic()
        self.instance = secrets.token_hex(8)
        """Of this process."""

    def expected(self) -> int:
        """The number of running nodes, this one included; 0: unknown, because this node has just started or is cut
        off."""
        complete = time.monotonic() - self._began > COMPLETE_SECONDS
        others = self.nodes()
        return len(others) + 1 if complete and others else 0

    def note(self, node: str, instance: str) -> None:
        self._at[node] = time.monotonic()
        self._instances[node] = instance

    def has_lost(self, node: str, instance: str) -> bool:
        """Whether this process of the node has ended, or cannot be reached."""
        return node not in self.nodes() or self._instances[node] != instance

    def nodes(self) -> set[str]:
        since = time.monotonic() - RECENT_SECONDS
        return {node for node, at in self._at.items() if at >= since}


async def gather(stream: Stream, subject: str, data: bytes, seconds: float, enough: int = 0) -> list[bytes]:
    """The responses of all nodes within `seconds`. Returns early with `enough` responses."""
    inbox = stream.connection.new_inbox()
    found: list[bytes] = []
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        subscription = await stream.connection.subscribe(inbox)
    except (NatsError, OSError):  # the connection is closed
        return found
    try:
        await stream.connection.publish(f"{stream.name}.{subject}", data, reply=inbox)
        while (left := deadline - asyncio.get_running_loop().time()) > 0 and not 0 < enough <= len(found):
            message = await subscription.next_msg(timeout=left)
            if message.headers and "Status" in message.headers:  # no node is subscribed
                break
            found.append(message.data)
    except (NatsTimeoutError, NatsError, OSError):
        pass
    finally:
        with contextlib.suppress(NatsError, OSError):
            await subscription.unsubscribe()
    return found


async def respond_to(message: Msg, data: bytes, headers: dict[str, Any] | None = None) -> None:
    try:
        await message._client.publish(message.reply, data, headers=headers)
    except MaxPayloadError:
        raise
    except (NatsError, OSError):
        log.debug("a response could not be sent")


def read_statuses(responses: Iterable[bytes]) -> list[NodeStatus]:
    """Skips what is no status of a node."""
    found = []
    for data in responses:
        try:
            found.append(msgspec.json.decode(data, type=NodeStatus))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning("a response that is no status of a node is ignored: %s", error)
    return found


async def collect(stream: Stream, seconds: float = COLLECT_SECONDS, enough: int = 0) -> list[NodeStatus]:
    """The status of every node that responds in time. Returns early with `enough` of them."""
    found = read_statuses(await gather(stream, "nodes", b"", seconds, enough))
    return sorted(found, key=lambda status: status.node)
