"""Clients whose broker is killed again and again: nothing is lost, nothing is repeated, the order holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client.shells import KINDS, Shell
from kit.broker import Broker
from kit.wire import GUARD_SECONDS
from polycast.client import State, StateChange
from polycast.model import Message, Prefix

KILLS = 5
BETWEEN = 400
"""Messages that arrive between two kills, at least."""


class Restarting:
    """A broker on socket files, so that it has the same addresses after a restart."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.pub, self.sub = f"ipc://{folder}/pub", f"ipc://{folder}/sub"
        listen = (f"--listen=hermod.pub={self.pub}", f"--listen=hermod.sub={self.sub}")
        self._flags = (*listen, "--set=log.segment_bytes=65536", *flags)
        self._data = folder / "data"
        self._running: Broker | None = None

    def start(self) -> None:
        self._running = Broker(*self._flags, listen=(), data=self._data).__enter__()

    def kill(self) -> None:
        assert self._running
        self._running.kill()
        self._running.__exit__(None, None, None)

    def stop(self) -> None:
        assert self._running
        self._running.__exit__(None, None, None)


@contextmanager
def restarting(folder: Path) -> Iterator[Restarting]:
    broker = Restarting(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


class Publisher(threading.Thread):
    """Publishes numbers on three topics in turn, in lists of 1 to 50, until it is stopped."""

    def __init__(self, client: Shell) -> None:
        super().__init__(daemon=True)
        self._client = client
        self.stopping = threading.Event()
        self.count = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                size = self.count % 50 + 1
                numbers = range(self.count, self.count + size)
                self._client.publish(Message(f"t.{number % 3}", b"%d" % number) for number in numbers)
                self.count += size
        except BaseException as error:
            self.error = error


def collect(client: Shell, numbers: list[int], until: int) -> None:
    while len(numbers) < until:
        numbers += [int(message.payload) for message in client.receive(GUARD_SECONDS)]


def test_nothing_is_lost_or_repeated(kind: str, tmp_path: Path) -> None:
    states: list[StateChange] = []
    with (
        restarting(tmp_path) as broker,
        KINDS[kind]("hermod", broker.sub, reconnect=True, on_state=states.append) as subscriber,
        KINDS[kind]("hermod", broker.pub, True, reconnect=True) as client,
    ):
        subscriber.subscribe([Prefix("t.")])
        publisher = Publisher(client)
        publisher.start()
        numbers: list[int] = []
        for _ in range(KILLS):
            collect(subscriber, numbers, len(numbers) + BETWEEN)
            before = subscriber.reconnects
            broker.kill()
            broker.start()
            while subscriber.reconnects == before:
                collect(subscriber, numbers, len(numbers) + 1)
        publisher.stopping.set()
        publisher.join(GUARD_SECONDS)
        assert publisher.error is None and not publisher.is_alive()
        collect(subscriber, numbers, publisher.count)
        assert numbers == list(range(publisher.count))
        assert subscriber.reconnects >= KILLS and client.reconnects > 0
        assert [change.state for change in states].count(State.RESUMED) == subscriber.reconnects
