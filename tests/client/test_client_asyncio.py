"""Several tasks with one client, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from client.scripted import Scripted, read_exactly, read_to_end
from client.shells import place
from kit import hermod
from kit.broker import Broker
from kit.wire import GUARD_SECONDS
from polycast.client import AsyncClient, connect_async, from_body, to_body
from polycast.errors import RefusedError, RemoteError
from polycast.model import Body, Exact, Message


def run(task: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(task, GUARD_SECONDS))


async def collect(client: AsyncClient, count: int) -> list[bytes]:
    payloads: list[bytes] = []
    async for messages in client.messages():
        payloads += [message.payload for message in messages]
        if len(payloads) >= count:
            break
    return payloads


def test_one_task_receives_while_another_publishes(broker: Broker) -> None:
    async def scenario() -> None:
        async with await connect_async("ubre", place(broker, "ubre")) as client:
            await client.subscribe([Exact("talk")])
            async with asyncio.TaskGroup() as tasks:
                received = tasks.create_task(collect(client, 100))
                for number in range(100):
                    await client.publish([Message("talk", b"%d" % number)])
            assert received.result() == [b"%d" % number for number in range(100)]

    run(scenario())


def test_many_requests_at_once(broker: Broker) -> None:
    async def scenario() -> None:
        async with (
            await connect_async("ubre", place(broker, "ubre")) as server,
            await connect_async("ubre", place(broker, "ubre")) as client,
        ):
            await server.serve("double", lambda body: to_body(2 * from_body(body)))
            serving = asyncio.create_task(collect(server, 1))
            responses = await asyncio.gather(*(client.request("double", to_body(n)) for n in range(200)))
            assert [response.value for response in responses] == [2 * n for n in range(200)]
            serving.cancel()

    run(scenario())


def test_concurrent_publishers_get_their_own_acknowledgements() -> None:
    def script(connection: socket.socket) -> None:
        read_exactly(connection, b'{"batch_type":"End"}')
        connection.sendall(hermod.ok(0))
        for number in range(6):
            frame = b""
            while not frame.endswith(b"}%d" % number):
                frame += connection.recv(1)
            refuse = b'{"status": "ERROR", "code": 403, "message": "no %d"}' % number
            connection.sendall(refuse if number % 2 else hermod.OK)
        read_to_end(connection)

    async def scenario(at: str) -> None:
        async with await connect_async("hermod", at, publishing=True, reconnect=False) as client:
            results = await asyncio.gather(
                *(client.publish([Message("x", b"%d" % number)]) for number in range(6)), return_exceptions=True
            )
        for number, result in enumerate(results):
            assert (isinstance(result, RefusedError) and f"no {number}" in str(result)) == bool(number % 2)

    with Scripted(script) as at:
        run(scenario(at))


def test_a_cancelled_wait_loses_nothing(broker: Broker) -> None:
    async def scenario() -> None:
        async with (
            await connect_async("hermod", place(broker, "hermod")) as subscriber,
            await connect_async("hermod", place(broker, "hermod", True), publishing=True) as publisher,
        ):
            await subscriber.subscribe([Exact("patience")])
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(subscriber.messages()), 0.01)
            await publisher.publish(Message("patience", b"%d" % number) for number in range(10))
            assert await collect(subscriber, 10) == [b"%d" % number for number in range(10)]

    run(scenario())


def test_an_error_in_the_block_does_not_wait_for_the_broker() -> None:
    def script(connection: socket.socket) -> None:
        with suppress(ConnectionResetError):
            read_to_end(connection)

    async def scenario(at: str) -> None:
        async with await connect_async("simplest", at) as client:
            await client.publish([Message("x", b"y")])
            raise KeyError("mine")

    with Scripted(script) as at, pytest.raises(KeyError, match="mine"):
        run(scenario(at))


def test_a_lost_connection_wakes_all_waiting_tasks() -> None:
    def script(connection: socket.socket) -> None:
        read_exactly(connection, b'{"topics":["x"],"offsets":true}')
        connection.sendall(hermod.OK)
        connection.sendall(b"nonsense")
        read_to_end(connection)

    async def scenario(at: str) -> None:
        client = await connect_async("hermod", at, reconnect=False)
        await client.subscribe([Exact("x")])
        results = await asyncio.gather(*(collect(client, 1) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(result, RemoteError) for result in results)
        with pytest.raises(RemoteError, match="not hermod"):
            await client.close()

    with Scripted(script) as at:
        run(scenario(at))


def test_async_handlers(broker: Broker) -> None:
    """The first request waits for the second."""
    run(_async_handlers(broker))


async def _async_handlers(broker: Broker) -> None:
    second = asyncio.Event()

    async def respond(body: Body) -> Body:
        if from_body(body) == "fail":
            raise ValueError("as you wish")
        await second.wait() if from_body(body) == 1 else second.set()
        return body

    async with await connect_async("ubre", place(broker, "ubre")) as client:
        await client.serve("slow", respond)
        requested = (client.request("slow", to_body(value)) for value in (1, 2, "fail"))
        first, other, failed = await asyncio.gather(*requested)
    assert (first.value, other.value) == (1, 2)
    assert (failed.success, failed.value) == (False, "as you wish")


def test_the_end_of_a_client_cancels_its_handlers(broker: Broker) -> None:
    run(_cancelled_handlers(broker))


async def _cancelled_handlers(broker: Broker) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def never(body: Body) -> Body:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return body

    async with await connect_async("ubre", place(broker, "ubre")) as other:
        async with await connect_async("ubre", place(broker, "ubre")) as client:
            await client.serve("never", never)
            reading = asyncio.create_task(anext(client.messages(), None))
            requested = asyncio.create_task(other.request("never"))
            await begun.wait()
        assert (await requested).value == "Gone"
        await cancelled.wait()
        await reading
