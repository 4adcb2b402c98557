"""Connects to the NATS servers of the stream. Errors name the cause and the cure."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import nats
from nats.aio.client import Client
from nats.errors import AuthorizationError

from polycast.cluster.managed_server import password_file
from polycast.cluster.nats_server import USER, read_password, to_local_address
from polycast.cluster.permissions import PermissionRefusals
from polycast.cluster.stream import ApiError, Stream
from polycast.errors import StartError, UsageError
from polycast.server.settings import ClusterSettings, Settings

log = logging.getLogger("polycast.cluster")

CONNECT_SECONDS = 20.0
STARTING_SECONDS = 30.0
"""How long a start waits for the servers to elect a leader."""
OLDEST_SERVER = (2, 12)


async def open_stream(
    settings: Settings,
    before: Callable[[Stream], Awaitable[object]] | None = None,
) -> Stream:
    """Awaits `before` as soon as a server is connected, which does not need a majority of the servers. Raises
    StartError if the servers cannot be used."""
    wanted = settings.cluster
    connection = await _connect(settings)
    stream = Stream(connection, wanted.stream)
    try:
        _check_version(connection)
        if before:
            await before(stream)
        await _wait_for_jetstream(stream, connection, wanted)
    except BaseException:
        await connection.close()
        raise
    return stream


async def _connect(settings: Settings) -> Client:
    wanted = settings.cluster
    servers = _to_servers(wanted)
    for server in servers:
        if urlsplit(server).scheme not in ("nats", "tls"):
            raise UsageError(f"cluster.servers: {server!r} is not nats://HOST:PORT")
    failed: list[Exception] = []
    refusals = PermissionRefusals(wanted.stream)

    async def note(error: Exception) -> None:
        failed.append(error)
        refusals.note(error)
        log.debug("%s", error)

    options = _to_options(settings)
    where = ", ".join(urlsplit(server).netloc.rpartition("@")[2] for server in servers)
    connecting = asyncio.ensure_future(
        nats.connect(
            servers, name=f"polycast {wanted.node}", error_cb=note, max_reconnect_attempts=-1,
            reconnect_time_wait=0.25, connect_timeout=2, ping_interval=2, max_outstanding_pings=2,
            pending_size=0,  # a reconnect must not send old publications
            **options,
        )
    )  # fmt: skip
    deadline = asyncio.get_running_loop().time() + CONNECT_SECONDS
    while not connecting.done():
        await asyncio.wait([connecting], timeout=0.1)
        refused = [error for error in failed if _is_refusal(error)]
        if not connecting.done() and (refused or asyncio.get_running_loop().time() > deadline):
            connecting.cancel()
            await asyncio.wait([connecting])
            raise _to_start_error(where, (refused or failed or [Exception("no response")])[-1], bool(refused))
    error = connecting.exception()
    if error:
        raise _to_start_error(where, error, _is_refusal(error)) from error
    return connecting.result()


def _to_servers(wanted: ClusterSettings) -> list[str]:
    """A managed server is enough: it sends the client the addresses of the others."""
    if wanted.servers or not wanted.manage:
        return list(wanted.servers)
    host, port = to_local_address(wanted.listen)
    return [f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"]


def _to_options(settings: Settings) -> dict[str, Any]:
    wanted = settings.cluster
    options: dict[str, Any] = {}
    if wanted.manage:
        options = {"user": USER, "password": read_password(password_file(settings))}
    elif wanted.credentials:
        options = {"user_credentials": wanted.credentials}
    if wanted.tls:
        options["tls"] = ssl.create_default_context(cafile=settings.tls.ca or None)
    return options


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, AuthorizationError) or "authorization" in str(error).lower()


def _to_start_error(where: str, error: BaseException, refused: bool) -> StartError:
    if refused:
        hint = "write nats://USER:PASSWORD@HOST:PORT, or name a credentials file with cluster.credentials"
        return StartError(f"the servers at {where} refuse the credentials of this node", hint)
    return StartError(f"no server responds at {where}: {error}", "start nats-server there, with JetStream")


def _check_version(connection: Client) -> None:
    version = connection.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise StartError(
            f"nats-server {version.major}.{version.minor} is too old", f"version {oldest} or newer is needed"
        )


async def _wait_for_jetstream(stream: Stream, connection: Client, wanted: ClusterSettings) -> None:
    """Servers that start together need a moment to elect a leader. A node with a managed server waits for the
    servers of other hosts without a limit: if the node stopped, its own server would stop with it."""
    if not connection._server_info.get("jetstream"):
        where = connection.connected_url.netloc.rpartition("@")[2] if connection.connected_url else "?"
        raise StartError(f"the server at {where} has no JetStream", "start nats-server with --jetstream")
    deadline = asyncio.get_running_loop().time() + STARTING_SECONDS
    while True:
        try:
            await stream.call("INFO", seconds=2.0)
            return
        except ApiError as error:
            late = asyncio.get_running_loop().time() > deadline
            if late and wanted.manage and error.code == 503:
                deadline += STARTING_SECONDS
                log.warning("waiting for a majority of the servers: %s; all need the same password",
                            ", ".join(wanted.routes))  # fmt: skip
            elif late or error.code != 503:
                text = f"JetStream does not respond: {error}"
                raise StartError(
                    text, "a majority of the servers must run, and the account needs JetStream"
                ) from error
        await asyncio.sleep(0.2)


def count_servers(connection: Client, wanted: ClusterSettings) -> int:
    return max(len(wanted.routes) + 1, len(connection.servers), len(connection.discovered_servers) + 1)
