"""An inbox: a subscription whose messages are read without a task of nats-py for each of them.

nats-py calls a subscription that has a future as soon as it has parsed a message. An inbox takes the place of that
future, and handles every message. The other kinds of subscriptions wake up to three tasks for each message, which
takes as long as everything else that a node does until an acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

log = logging.getLogger("polycast.cluster")


class Inbox:
    def __init__(self, subject: str, handle: Callable[[Msg], None]) -> None:
        self.subject = subject
        self._handle = handle
        self._subscription: Any = None

    @classmethod
    async def open(cls, connection: Client, handle: Callable[[Msg], None], more: str = "") -> Inbox:
        """`more`: the end of the subject, such as ".*"."""
        inbox = cls(connection.new_inbox(), handle)
        inbox._subscription = await connection.subscribe(inbox.subject + more, future=cast("Any", inbox))
        return inbox

    async def close(self) -> None:
        try:
            await self._subscription.unsubscribe()
        except (NatsError, OSError):
            log.debug("the subscription is gone already")

    # -- called by nats-py -------------------------------------------------------------------------------

    def cancelled(self) -> bool:
        return False

    def set_result(self, message: Msg) -> None:
        """Raises nothing: nats-py would read no more from the server."""
        try:
            self._handle(message)
        except Exception:
            log.exception("a message of %s", message.subject)


class InboxQueue:
    """The messages of an inbox that were not read yet."""

    def __init__(self) -> None:
        self._messages: deque[Msg] = deque()
        self._arrived: asyncio.Future[None] | None = None

    def put(self, message: Msg) -> None:
        self._messages.append(message)
        if self._arrived and not self._arrived.done():
            self._arrived.set_result(None)

    async def get(self, seconds: float) -> Msg:
        """Raises TimeoutError."""
        if not self._messages:
            self._arrived = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(seconds):
                await self._arrived
        return self._messages.popleft()
