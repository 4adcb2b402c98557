"""Connects to the NATS servers of the stream. Errors name the cause and the cure."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from nats.aio.client import Client
from nats.errors import AuthorizationError
from nats.errors import Error as NatsError

from polycast.cluster.managed_server import password_file
from polycast.cluster.nats_server import USER, read_password, to_local_address
from polycast.cluster.permissions import PermissionRefusals
from polycast.cluster.stream import ApiError, Stream
from polycast.cluster.tasks import end_tasks
from polycast.cluster.tls_client import NoTlsError, TlsClient
from polycast.errors import StartError
from polycast.server.io.tls import to_dial_context
from polycast.server.settings import ClusterSettings, Settings

log = logging.getLogger("polycast.cluster")

CONNECT_SECONDS = 20.0
RESPONSE_SECONDS = 2
RECONNECT_SECONDS = 0.25
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
        await stream.open_inbox()
        if before:
            await before(stream)
        await _wait_for_jetstream(stream, connection, wanted)
    except BaseException:
        await connection.close()
        raise
    return stream


async def _connect(settings: Settings) -> Client:
    wanted = settings.cluster
    servers, credentials = split_credentials(_to_servers(wanted))
    errors = ConnectionErrors()
    refusals = PermissionRefusals(wanted.stream)

    async def note(error: Exception) -> None:
        errors.note(error)
        refusals.note(error)
        log.debug("%s", error)

    where = ", ".join(urlsplit(server).netloc.rpartition("@")[2] for server in servers)
    client = TlsClient() if wanted.secure else Client()
    connecting = asyncio.ensure_future(
        client.connect(
            servers, name=f"polycast {wanted.node}", error_cb=note, max_reconnect_attempts=-1,
            connect_timeout=RESPONSE_SECONDS, ping_interval=2, max_outstanding_pings=2,
            pending_size=0,  # a reconnect must not send old publications
            **credentials | _to_options(settings),
        )
    )  # fmt: skip
    deadline = asyncio.get_running_loop().time() + CONNECT_SECONDS
    while not connecting.done():
        await asyncio.wait([connecting], timeout=0.1)
        late = asyncio.get_running_loop().time() > deadline
        if not connecting.done() and (errors.refused or late):
            await end_tasks([connecting])
            await client.close()
            raise _to_start_error(where, errors.refused or errors.last)
    if error := connecting.exception():
        raise _to_start_error(where, error) from error
    return client


class ConnectionErrors:
    """The errors of a connection. Only the last one is remembered: a connection without servers has new ones for
    as long as the node runs."""

    def __init__(self) -> None:
        self.last: Exception = NatsError("no response")
        self.refused: Exception | None = None
        """An error that does not go away by itself."""

    def note(self, error: Exception) -> None:
        self.last = error
        if _is_refusal(error) or isinstance(error, NoTlsError):
            self.refused = error


def _to_servers(wanted: ClusterSettings) -> list[str]:
    """A managed server is enough: it sends the client the addresses of the others."""
    if wanted.servers or not wanted.manage:
        return list(wanted.servers)
    host, port = to_local_address(wanted.listen)
    return [f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"]


def split_credentials(servers: list[str]) -> tuple[list[str], dict[str, str]]:
    """The addresses without user and password, and the options of the client in their place: it would use
    those of an address for that server alone. Addresses with different ones stay as they are."""
    parts = [urlsplit(server) for server in servers]
    found = {(each.username, each.password) for each in parts}
    user, password = found.pop()
    if found or user is None:
        return servers, {}
    plain = [each._replace(netloc=each.netloc.rpartition("@")[2]).geturl() for each in parts]
    if password is None:
        return plain, {"token": unquote(user)}
    return plain, {"user": unquote(user), "password": unquote(password)}


def _to_options(settings: Settings) -> dict[str, Any]:
    wanted = settings.cluster
    options: dict[str, Any] = {"reconnect_time_wait": RECONNECT_SECONDS}
    if wanted.manage:
        options |= {"user": USER, "password": read_password(password_file(settings))}
    elif wanted.credentials:
        options |= {"user_credentials": wanted.credentials}
    if wanted.secure:
        options["tls"] = to_dial_context(settings.tls)
    return options


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, AuthorizationError) or "authorization" in str(error).lower()


def _to_start_error(where: str, error: BaseException) -> StartError:
    if isinstance(error, NoTlsError):
        hint = "add a tls block to its configuration, or write cluster.tls = false and nats:// addresses"
        return StartError(f"the server at {where} does not offer TLS", hint)
    if _is_refusal(error):
        hint = "write nats://USER:PASSWORD@HOST:PORT, or name a credentials file with cluster.credentials"
        return StartError(f"the servers at {where} refuse the credentials of this node", hint)
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "tls.ca names the authority that signed it; name the servers as their certificates do"
        return StartError(
            f"the server at {where} has a certificate that is not valid: {error.verify_message}", hint
        )
    reason = f"nothing came within {RESPONSE_SECONDS} s" if isinstance(error, TimeoutError) else str(error)
    hint = "start nats-server there, with JetStream; HOST:PORT is where it accepts clients"
    return StartError(f"no nats-server responds at {where}: {reason}", hint)


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
    """The servers that a new stream can use. Raises StartError if there are others, but it is unknown how many:
    the stream would have one replica."""
    known = max(len(wanted.routes) + 1, len(connection.servers), len(connection.discovered_servers) + 1)
    cluster = connection._server_info.get("cluster")
    if known == 1 and cluster and not wanted.replicas:
        text = f"the server belongs to the cluster {cluster}, and names no other server (no_advertise?)"
        raise StartError(text, "name all servers in cluster.servers, or set cluster.replicas")
    return known
