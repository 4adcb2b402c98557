"""Both kinds of client, driven alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Protocol, TypeVar

from kit.broker import Broker
from kit.wire import GUARD_SECONDS
from polycast.client import DIALECTS, NO_BODY, AsyncClient, Handler, Response, connect, connect_async
from polycast.client.states import OnState
from polycast.dialects.client_subscriptions import StartFrom
from polycast.model import Body, Message, Pattern

T = TypeVar("T")
LISTENERS = (
    "simplest", "hermod.pub", "hermod.sub", "fanout.client", "fanout.controller", "nanomsg.pub", "nanomsg.sub",
    "http",
)  # fmt: skip


class Shell(AbstractContextManager["Shell"], Protocol):
    def publish(self, messages: Iterable[Message], timeout: float = GUARD_SECONDS) -> None: ...
    def publish_once(self, messages: Iterable[Message], batch_id: str) -> int: ...
    def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None: ...
    def receive(self, timeout: float | None = None) -> list[Message]: ...
    def messages(self) -> Iterator[list[Message]]: ...
    @property
    def reconnects(self) -> int: ...
    def request(self, route: str, body: Body = NO_BODY, timeout: float = GUARD_SECONDS) -> Response: ...
    def serve(self, route: str, handler: Handler) -> None: ...
    def close(self) -> None: ...


class Awaited(Shell):
    """An asyncio client with a loop of its own, which runs while somebody waits."""

    def __init__(
        self,
        dialect: str,
        at: str,
        publishing: bool = False,
        timeout: float = 10.0,
        reconnect: bool = False,
        on_state: OnState = lambda change: None,
    ) -> None:
        self._loop = asyncio.Runner()
        try:
            opening = connect_async(dialect, at, publishing, timeout, reconnect, on_state)
            self._client: AsyncClient = self._run(opening)
        except BaseException:
            self._loop.close()
            raise

    def _run(self, awaitable: Awaitable[T]) -> T:
        async def guarded() -> T:
            return await asyncio.wait_for(awaitable, GUARD_SECONDS)

        return self._loop.run(guarded())

    def publish(self, messages: Iterable[Message], timeout: float = GUARD_SECONDS) -> None:
        self._run(self._client.publish(messages, timeout))

    def publish_once(self, messages: Iterable[Message], batch_id: str) -> int:
        return self._run(self._client.publish_once(messages, batch_id))

    def subscribe(self, patterns: Iterable[Pattern], start: StartFrom | None = None) -> None:
        self._run(self._client.subscribe(patterns, start))

    @property
    def reconnects(self) -> int:
        return self._client.reconnects

    def receive(self, timeout: float | None = None) -> list[Message]:
        return self._run(self._client.receive(timeout))

    def messages(self) -> Iterator[list[Message]]:
        arriving = self._client.messages()
        while batch := self._run(anext(arriving, None)):
            yield batch

    def request(self, route: str, body: Body = NO_BODY, timeout: float = GUARD_SECONDS) -> Response:
        return self._run(self._client.request(route, body, timeout))

    def serve(self, route: str, handler: Handler) -> None:
        self._run(self._client.serve(route, handler))

    def close(self) -> None:
        try:
            self._run(self._client.close())
        finally:
            self._loop.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._client.__aexit__(kind, error, trace))
        finally:
            self._loop.close()


KINDS: dict[str, Callable[..., Shell]] = {"blocking": partial(connect, reconnect=False), "asyncio": Awaited}
"""They do not reconnect by default."""


def place(broker: Broker, dialect: str, publishing: bool = False) -> str:
    chosen = DIALECTS[dialect]
    return f"tcp://127.0.0.1:{broker.ports[chosen.publishers if publishing else chosen.subscribers]}"


def take_plain(client: Shell, count: int) -> list[Message]:
    """Without sequence, offset and time."""
    return [Message(*each[:3]) for each in take(client, count)]


def take(client: Shell, count: int) -> list[Message]:
    taken: list[Message] = []
    for messages in client.messages():
        taken += messages
        if len(taken) >= count:
            break
    return taken
