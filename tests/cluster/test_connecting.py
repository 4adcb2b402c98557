"""Connecting to servers, without servers of NATS."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from nats.errors import AuthorizationError
from nats.errors import Error as NatsError

from polycast.cluster.connecting import ConnectionErrors, count_servers, open_stream
from polycast.cluster.stream import default_replicas
from polycast.errors import StartError
from polycast.server.settings import ClusterSettings, Settings

INFO = {"server_id": "S", "version": "2.15.1", "max_payload": 1048576, "jetstream": True, "headers": True}


def settings_for(port: int, scheme: str, **more: object) -> Settings:
    cluster = ClusterSettings(servers=[f"{scheme}://user:secret@127.0.0.1:{port}"], node="a")
    return Settings(cluster=replace(cluster, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("scheme", "tls"), [("nats", True), ("tls", True), ("tls", False)])
def test_a_server_without_tls_gets_no_password(scheme: str, tls: bool) -> None:
    received = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        received += await reader.read()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await open_stream(settings_for(port, scheme, tls=tls))

    with pytest.raises(StartError, match="does not offer TLS") as raised:
        asyncio.run(run())
    assert "tls" in raised.value.hint
    assert received == b""


def test_the_errors_of_a_connection_take_no_memory() -> None:
    errors = ConnectionErrors()
    refusal = AuthorizationError()
    errors.note(refusal)
    for _ in range(1_000):
        errors.note(last := NatsError("no server"))
    assert vars(errors) == {"last": last, "refused": refusal}


def connected(known: int, cluster: str) -> Any:
    return SimpleNamespace(servers=[""] * known, discovered_servers=[], _server_info={"cluster": cluster})


@pytest.mark.parametrize(("known", "cluster", "replicas"), [(1, "", 1), (2, "x", 2), (3, "x", 3), (5, "x", 3)])
def test_a_stream_has_as_many_replicas_as_there_are_servers(known: int, cluster: str, replicas: int) -> None:
    assert default_replicas(count_servers(connected(known, cluster), ClusterSettings())) == replicas


def test_a_server_that_names_no_other_server_of_its_cluster() -> None:
    """As with `no_advertise`."""
    with pytest.raises(StartError, match="the cluster x, and names no other server") as raised:
        count_servers(connected(1, "x"), ClusterSettings())
    assert raised.value.hint == "name all servers in cluster.servers, or set cluster.replicas"
    assert count_servers(connected(1, "x"), ClusterSettings(replicas=1)) == 1
