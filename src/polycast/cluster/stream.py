"""The stream: creation, metadata, publishing.

The subject of the stream is `NAME.log`; all other subjects under `NAME.` are core NATS between nodes. The metadata
of the stream has what all nodes must agree on: the format of messages, the settings that apply depends on, and the
start of the log.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from polycast.cluster.inbox import Inbox
from polycast.cluster.messages import VERSION
from polycast.errors import PolycastError, StartError
from polycast.server.settings import ClusterSettings, Settings

log = logging.getLogger("polycast.cluster")

API_SECONDS = 5.0
DEFAULT_REPLICAS = 3
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
NOT_FOUND = 404
STREAM_EXISTS = 10058
NO_SUITABLE_PEERS = 10005
PLACEMENT_SECONDS = 15.0
"""Servers that have just started do not know each other yet."""
PLACEMENT_RETRY_SECONDS = 0.2
CONTACT_NANOS = 3 * 10**9
"""Servers send heartbeats once a second."""


class ApiError(PolycastError):
    """JetStream refused, or did not respond (code 503)."""

    def __init__(self, code: int, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.number = number


class Agreed(msgspec.Struct, frozen=True):
    """The settings that apply depends on, and the format of messages. Equal on all nodes."""

    format: str
    topics: str
    batch_ids: str
    batch_id_seconds: str

    @classmethod
    def of(cls, settings: Settings) -> Agreed:
        seconds = f"{settings.log.batch_id_seconds:g}"
        return cls(str(VERSION), str(settings.limits.topics), str(settings.log.batch_ids), seconds)


AGREED_SETTINGS = {
    "topics": "limits.topics",
    "batch_ids": "log.batch_ids",
    "batch_id_seconds": "log.batch_id_seconds",
}


class Genesis(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of the log when the stream was created; all fields are empty for a new log."""

    log: str = ""
    """The id of the log: the seed of its checksums."""
    next: int = 0
    checksum: str = ""
    """The checksum of the last group."""
    stream: str = ""
    """The previous stream, and the position in it of the node that seeded this stream."""
    sequence: int = 0
    chain: str = ""


class StreamInfo(NamedTuple):
    id: str
    """The name and the creation time, so that no two streams have the same id."""
    first: int
    last: int
    leader: str
    replicas: list[str]
    agreed: Agreed
    genesis: Genesis
    config: dict[str, Any]
    confirmed: bool = True
    """Whether the leader is in contact with a majority of the replicas. A server that was the leader a moment ago
    responds as well, and may know less."""


class Accepted(NamedTuple):
    """The acknowledgement of the servers."""

    sequence: int
    """The stream sequence."""
    repeated: bool = False
    """Whether it belongs to an earlier message with the same id, which need not have the same bytes."""


class Stream:
    def __init__(self, connection: Client, name: str) -> None:
        self.connection = connection
        self.name = name
        self.subject = f"{name}.log"
        self._inbox: Inbox
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Msg]] = {}
        """Messages that were published, without a response."""

    async def open_inbox(self) -> None:
        """Responses to messages that are published go there."""
        self._inbox = await Inbox.open(self.connection, self._note_response, ".*")

    # -- JetStream ---------------------------------------------------------------------------------------

    async def call(self, method: str, body: Any = None, seconds: float = API_SECONDS) -> dict[str, Any]:
        data = json.dumps(body).encode() if body is not None else b""
        try:
            response = await self.connection.request(f"$JS.API.{method}", data, timeout=seconds)
        except NoRespondersError as error:
            raise ApiError(503, "no server with JetStream responds") from error
        except (NatsTimeoutError, NatsError, OSError) as error:
            raise ApiError(503, str(error) or type(error).__name__) from error
        found: dict[str, Any] = json.loads(response.data)
        if refused := found.get("error"):
            number = refused.get("err_code", 0)
            raise ApiError(refused.get("code", 500), refused.get("description", "refused"), number)
        return found

    async def info(self, seconds: float = API_SECONDS) -> StreamInfo | None:
        """None: the stream does not exist."""
        try:
            found = await self.call(f"STREAM.INFO.{self.name}", seconds=seconds)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return to_info(found)

    async def create(self, settings: ClusterSettings, agreed: Agreed, genesis: Genesis, servers: int) -> None:
        replicas = settings.replicas or default_replicas(servers)
        config = {
            "name": self.name, "subjects": [self.subject], "storage": "file", "retention": "limits",
            "discard": "old", "max_bytes": settings.max_bytes, "max_msg_size": MAX_MESSAGE_BYTES,
            "num_replicas": replicas, "deny_delete": True, "deny_purge": True,
            "duplicate_window": 120 * 10**9,
            "metadata": {
                "polycast.agreed": msgspec.json.encode(agreed).decode(),
                "polycast.genesis": msgspec.json.encode(genesis).decode(),
            },
        }  # fmt: skip
        try:
            await self._create(config)
            if replicas == 1:
                log.warning("the stream %s has one replica: what its server loses is lost", self.name)
        except ApiError as error:
            if error.number != STREAM_EXISTS:  # another node was first
                text = f"the stream {self.name} with {replicas} replicas cannot be created: {error}"
                hint = "start more servers, give them more storage, or set cluster.replicas or cluster.max_bytes"
                raise StartError(text, hint) from error

    async def _create(self, config: dict[str, Any]) -> None:
        deadline = time.monotonic() + PLACEMENT_SECONDS
        while True:
            try:
                await self.call(f"STREAM.CREATE.{self.name}", config)
                return
            except ApiError as error:
                if error.number != NO_SUITABLE_PEERS or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(PLACEMENT_RETRY_SECONDS)

    async def publish(self, data: bytes, message_id: str, seconds: float) -> Accepted:
        headers = {"Nats-Msg-Id": message_id, "Nats-Expected-Stream": self.name}
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self.connection.publish(self.subject, data, f"{self._inbox.subject}.{number}", headers)
                response = await self._waiting[number]
        except (NatsError, OSError) as error:
            raise ApiError(503, str(error) or type(error).__name__) from error
        finally:
            del self._waiting[number]
        if response.headers and "Status" in response.headers:
            raise ApiError(503, "no server with JetStream responds")
        found = json.loads(response.data)
        if refused := found.get("error"):
            raise ApiError(refused.get("code", 500), refused.get("description", ""), refused.get("err_code", 0))
        return Accepted(int(found["seq"]), bool(found.get("duplicate")))

    def _note_response(self, message: Msg) -> None:
        number = message.subject.rpartition(".")[2]
        waiting = self._waiting.get(int(number)) if number.isdecimal() else None
        if waiting and not waiting.done():
            waiting.set_result(message)

    async def get(self, sequence: int) -> bytes:
        """The message with this sequence. Raises ApiError with the code 404 if the stream does not have it."""
        found = await self.call(f"STREAM.MSG.GET.{self.name}", {"seq": sequence})
        return base64.b64decode(found["message"].get("data", ""))

    # -- between nodes, over core NATS -------------------------------------------------------------------

    async def broadcast(self, subject: str, body: Any) -> None:
        """Sends to all nodes; lost while the servers are unreachable."""
        try:
            await self.connection.publish(f"{self.name}.{subject}", msgspec.json.encode(body))
        except (NatsError, OSError):
            log.debug("%s could not be sent", subject)

    async def subscribe(self, subject: str, handle: Callable[[Msg], Awaitable[None]], queue: str = "") -> Any:
        return await self.connection.subscribe(f"{self.name}.{subject}", queue=queue, cb=handle)

    async def close(self) -> None:
        """nats-py writes what it has not sent, also when the connection is lost."""
        try:
            await self.connection.close()
        except (NatsError, OSError, RuntimeError) as error:  # RuntimeError: uvloop's transport is closed
            log.debug("the connection is lost: %s", error)


def to_info(found: dict[str, Any]) -> StreamInfo:
    config, state, cluster = found["config"], found["state"], found.get("cluster") or {}
    metadata = config.get("metadata") or {}
    try:
        agreed = msgspec.json.decode(metadata["polycast.agreed"], type=Agreed)
        genesis = msgspec.json.decode(metadata["polycast.genesis"], type=Genesis)
    except (KeyError, msgspec.DecodeError) as error:
        text = f"the stream {config['name']} was not created by Polycast, or by another version"
        raise StartError(text, "cluster.stream names another stream") from error
    replicas = [replica["name"] for replica in cluster.get("replicas") or []]
    stream_id = f"{config['name']} {found['created']}"
    return StreamInfo(
        stream_id,
        state["first_seq"],
        state["last_seq"],
        cluster.get("leader", ""),
        replicas,
        agreed,
        genesis,
        config,
        _is_confirmed(cluster.get("replicas") or []),
    )


def _is_confirmed(others: list[dict[str, Any]]) -> bool:
    near = [each for each in others if not each.get("offline") and each.get("active", 0) < CONTACT_NANOS]
    return 2 * (len(near) + 1) > len(others) + 1


def default_replicas(servers: int) -> int:
    """One for each server. Of two replicas, both are needed to acknowledge: nothing is lost with one of them."""
    return min(DEFAULT_REPLICAS, servers)


def check_replicas(info: StreamInfo, wanted: ClusterSettings) -> None:
    """Raises StartError if the stream has fewer replicas than this node asks for."""
    found = info.config.get("num_replicas", 1)
    if found < wanted.replicas:
        name = info.config["name"]
        text = f"the stream {name} has {found} replicas, and cluster.replicas is {wanted.replicas}"
        hint = (
            f"nats stream edit {name} --replicas {wanted.replicas} adds some, if so many servers run; "
            "or lower cluster.replicas"
        )
        raise StartError(text, hint)


def check_agreed(info: StreamInfo, agreed: Agreed) -> None:
    """Raises StartError if this node would apply messages differently."""
    if info.agreed.format != agreed.format:
        text = f"the stream has messages of format {info.agreed.format}, this node writes {agreed.format}"
        hint = "all nodes of a cluster run the same version of Polycast"
        if info.agreed.format.isdecimal() and int(info.agreed.format) < VERSION:
            hint += (
                "; to upgrade all of them, stop all nodes, run `polycast cluster restore --yes --replace` with "
                "this version at the node with the highest sequence, and start all nodes"
            )
        raise StartError(text, hint)
    for field, setting in AGREED_SETTINGS.items():
        mine, theirs = getattr(agreed, field), getattr(info.agreed, field)
        if mine != theirs:
            text = f"{setting} is {mine} here, and {theirs} in the cluster {info.id.split()[0]}"
            raise StartError(text, f"set {setting} = {theirs}: all nodes need the same")
