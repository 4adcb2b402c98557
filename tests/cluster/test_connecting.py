"""Connecting to servers, without servers of NATS."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from nats.errors import AuthorizationError
from nats.errors import Error as NatsError

from polycast.cluster.connecting import ConnectionErrors, open_stream
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
