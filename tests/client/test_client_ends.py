"""How clients close, and how they notice that a broker has closed before them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from client.scripted import Scripted
from client.shells import KINDS, place
from kit.broker import Broker
from kit.wire import GUARD_SECONDS, wait_for
from polycast.client import DIALECTS, AsyncClient, Client, connect, connect_async, to_client_session
from polycast.errors import RemoteError
from polycast.model import Exact, Message

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
silent_dialects = pytest.mark.parametrize("dialect", ["simplest", "fanout", "nanomsg"])

PUBLISHER_HEADER, SUBSCRIBER_HEADER = b"\0SP\0\0\x20\0\0", b"\0SP\0\0\x21\0\0"


def run(task: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(task, GUARD_SECONDS))


# -- closing ---------------------------------------------------------------------------------------------


@every_dialect
@pytest.mark.parametrize("publishing", [False, True])
def test_a_blocking_client_can_be_closed_twice(broker: Broker, dialect: str, publishing: bool) -> None:
    with connect(dialect, place(broker, dialect, publishing), publishing) as client:
        if publishing:
            client.publish([Message("x", b"y")])
        client.close()
        client.close()
    client.close()


@every_dialect
@pytest.mark.parametrize("publishing", [False, True])
def test_an_asyncio_client_can_be_closed_twice(broker: Broker, dialect: str, publishing: bool) -> None:
    async def scenario() -> None:
        async with await connect_async(dialect, place(broker, dialect, publishing), publishing) as client:
            if publishing:
                await client.publish([Message("x", b"y")])
            await client.close()
            await client.close()
        await client.close()

    run(scenario())


def expect_closed(client: Client, dialect: str) -> None:
    with pytest.raises(RemoteError, match="closed"):
        client.publish([Message("x", b"y")])
    if not to_client_session(dialect).one_way:
        with pytest.raises(RemoteError, match="closed"):
            client.subscribe([Exact("x")])
    if dialect == "ubre":
        with pytest.raises(RemoteError, match="closed"):
            client.request("polycast/topics")
        with pytest.raises(RemoteError, match="closed"):
            client.serve("x", lambda body: body)
    assert list(client.messages()) == []


@every_dialect
def test_a_closed_blocking_client_raises(broker: Broker, dialect: str) -> None:
    client = connect(dialect, place(broker, dialect, True), True)
    client.close()
    expect_closed(client, dialect)


@every_dialect
def test_a_blocking_client_is_closed_after_an_error_in_its_block(broker: Broker, dialect: str) -> None:
    with pytest.raises(KeyError), connect(dialect, place(broker, dialect, True), True) as client:
        raise KeyError("mine")
    expect_closed(client, dialect)
    client.close()


@every_dialect
def test_a_closed_asyncio_client_raises(broker: Broker, dialect: str) -> None:
    async def scenario() -> None:
        client = await connect_async(dialect, place(broker, dialect, True), True)
        await client.close()
        with pytest.raises(RemoteError, match="closed"):
            await client.publish([Message("x", b"y")])
        assert [batch async for batch in client.messages()] == []
        client = await connect_async(dialect, place(broker, dialect))
        await client.close()
        with pytest.raises(RemoteError, match="closed"):
            await client.subscribe([Exact("x")])
        if dialect == "ubre":
            with pytest.raises(RemoteError, match="closed"):
                await client.request("polycast/topics")

    run(scenario())


def test_the_messages_of_a_blocking_client_end_when_it_is_closed(broker: Broker) -> None:
    with connect("ubre", place(broker, "ubre")) as client:
        client.subscribe([Exact("bye")])
        client.publish([Message("bye", b"")])
        for _ in client.messages():
            client.close()


async def listen(client: AsyncClient) -> int:
    return len([batch async for batch in client.messages()])


@every_dialect
def test_closing_ends_the_loops_of_other_tasks(broker: Broker, dialect: str) -> None:
    async def scenario() -> None:
        client = await connect_async(dialect, place(broker, dialect))
        await client.subscribe([Exact("nobody says this")])
        tasks = [asyncio.create_task(listen(client)) for _ in range(3)]
        await asyncio.sleep(0)  # they begin to wait
        await client.close()
        assert await asyncio.gather(*tasks) == [0, 0, 0]

    run(scenario())


def test_closing_ends_the_waits_of_other_tasks(broker: Broker) -> None:
    async def scenario() -> None:
        async with await connect_async("ubre", place(broker, "ubre")) as server:
            await server.serve("never", lambda body: body)  # nobody reads there
            client = await connect_async("ubre", place(broker, "ubre"))
            requesting = asyncio.create_task(client.request("never"))
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises(RemoteError, match="this client is closed"):
                await requesting

    run(scenario())


# -- brokers that close first ----------------------------------------------------------------------------


class HangsUp(Scripted):
    """Reads something, and closes."""

    def __init__(self, dialect: str) -> None:
        self.gone = threading.Event()
        self._dialect = dialect
        super().__init__(self._hang_up)

    def _hang_up(self, connection: socket.socket) -> None:
        if self._dialect == "nanomsg":
            connection.sendall(SUBSCRIBER_HEADER)
            assert connection.recv(len(PUBLISHER_HEADER), socket.MSG_WAITALL) == PUBLISHER_HEADER
        connection.recv(65536)
        connection.close()
        self.gone.set()


@silent_dialects
def test_closing_notices_a_broker_that_has_left(kind: str, dialect: str) -> None:
    script = HangsUp(dialect)
    with script as at:
        client = KINDS[kind](dialect, at, True)
        client.publish([Message("x", b"refused")])
        wait_for(script.gone.is_set, "the broker to leave")
        with pytest.raises(RemoteError, match="connection, some messages may be lost; its log says why"):
            client.close()


@silent_dialects
def test_publishing_notices_a_broker_that_has_left(kind: str, dialect: str) -> None:
    script = HangsUp(dialect)
    with (
        script as at,
        pytest.raises(RemoteError, match="some messages may be lost"),
        KINDS[kind](dialect, at, True) as client,
    ):
        client.publish([Message("x", b"refused")])
        wait_for(script.gone.is_set, "the broker to leave")
        for _ in range(10):  # asyncio looks at the connection between these
            client.publish([Message("x", b"lost")])
        pytest.fail("nothing was noticed")


@silent_dialects
def test_a_broker_that_stays_is_no_error(broker: Broker, kind: str, dialect: str) -> None:
    with KINDS[kind](dialect, place(broker, dialect, True), True) as client:
        for _ in range(3):
            client.publish([Message("x", b"y")])
