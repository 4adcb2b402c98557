"""An inbox stands in for the future of a subscription, and must never raise into nats-py."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from cluster.place import Place
from polycast.cluster.inbox import Inbox, InboxQueue
from polycast.cluster.stream import ApiError, Stream


def message(data: bytes) -> Msg:
    return Msg(cast("Client", None), "subject", "", data)


def test_messages_are_read_in_their_order_and_silence_is_an_error() -> None:
    async def test() -> None:
        queue = InboxQueue()
        for number in range(3):
            queue.put(message(b"%d" % number))
        assert [(await queue.get(0.0)).data for _ in range(3)] == [b"0", b"1", b"2"]
        with pytest.raises(TimeoutError):
            await queue.get(0.0)
        queue.put(message(b"late"))  # after its reader gave up
        waiting = asyncio.create_task(queue.get(0.0))
        assert (await waiting).data == b"late"
        waiting = asyncio.create_task(queue.get(60.0))
        await asyncio.sleep(0)
        for data in (b"one", b"two"):
            queue.put(message(data))
        assert (await waiting).data == b"one"
        assert (await queue.get(0.0)).data == b"two"

    asyncio.run(test())


def test_a_message_that_cannot_be_handled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(message: Msg) -> None:
        raise ValueError("no such message")

    with caplog.at_level(logging.ERROR):
        Inbox("a", refuse).set_result(message(b"?"))
    assert "no such message" in caplog.text


@pytest.mark.parametrize("subject", ["i.x", "i.", "i.7", "i.²"])
def test_a_response_to_nothing_is_ignored(subject: str) -> None:
    stream = Stream(cast("Client", None), "S")
    stream._note_response(cast("Any", SimpleNamespace(subject=subject)))


def test_an_inbox_of_the_real_client_gets_every_message(place: Place) -> None:
    """nats-py calls the future of a subscription for every message, also after a new connection."""

    async def test() -> None:
        connection = await nats.connect(place.urls, max_reconnect_attempts=-1, reconnect_time_wait=0.01)
        queue = InboxQueue()
        inbox = await Inbox.open(connection, queue.put, ".*")
        for number in range(50):
            await connection.publish(f"{inbox.subject}.{number}", b"%d" % number)
        assert [(await queue.get(10.0)).data for _ in range(50)] == [b"%d" % number for number in range(50)]
        await connection.force_reconnect()
        await connection.publish(f"{inbox.subject}.again", b"again")
        assert (await queue.get(10.0)).data == b"again"
        await inbox.close()
        await connection.close()

    asyncio.run(test())


def test_a_server_without_the_stream_is_an_error_at_once(place: Place) -> None:
    async def test() -> None:
        connection = await nats.connect(place.urls)
        stream = Stream(connection, f"{place.stream}-none")
        await stream.open_inbox()
        with pytest.raises(ApiError) as raised:
            await stream.publish(b"x", "id", 60.0)
        assert raised.value.code == 503
        await connection.close()
        with pytest.raises(ApiError, match="onnection"):
            await stream.publish(b"x", "id", 60.0)

    asyncio.run(test())
