"""Several brokers with links between them, each link through a proxy that can cut it."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from kit.broker import ALL, Broker
from kit.proxy import Proxy
from kit.room import Room
from kit.wire import Peer

LISTEN = (*ALL, "simplest.peer")


class Net:
    """`with Net() as net: net.start("A"); net.start("B", "A")`: B dials A."""

    def __init__(self) -> None:
        self._everything = ExitStack()
        self._rooms = ExitStack()
        self.brokers: dict[str, Broker] = {}
        self.rooms: dict[str, Room] = {}
        self.links: dict[str, Proxy] = {}
        """By their ends, as in `BA`: the one that dials first."""

    def __enter__(self) -> Net:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._everything:
            self._rooms.close()

    def start(self, name: str, peers: str = "", *flags: str) -> Broker:
        """Starts a broker that dials each of the others named."""
        for peer in peers:
            proxy = Proxy(self.brokers[peer].ports["simplest.peer"])
            self.links[name + peer] = self._everything.enter_context(proxy)
        dial = [f"--peer=127.0.0.1:{self.links[name + peer].port}" for peer in peers]
        broker = self._everything.enter_context(Broker(*flags, *dial, listen=LISTEN))
        self.brokers[name] = broker
        self.rooms[name] = self._rooms.enter_context(Room(broker))
        return broker

    def flush(self) -> None:
        """Whatever links have carried up to now has been handled: every broker has gone round twice."""
        for room in self.rooms.values():
            for _ in range(2):
                room.simplest()

    def wait_for_subscriptions(self, *texts: str, links: str = "") -> None:
        """Until both ends of these links, or of all, have subscribed to these texts."""
        for proxy in [self.links[link] for link in links.split()] if links else self.links.values():
            for text in texts:
                proxy.wait_until_carried(f"sub {text}\n".encode(), both_ways=True)
        self.flush()

    def publish(self, name: str, frames: bytes) -> Peer:
        return self.rooms[name].simplest(frames)
