"""Publishers that record their acknowledgements.

A unit is acknowledged as a whole: a message, a batch, or a batch with an id. Every payload contains the name
of its publisher and a number. After a lost connection, the fate of pending units is unknown: a publisher
repeats those with an id, and no others.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from crash.restartable import RestartableBroker
from kit import hermod
from kit.wire import Peer

TOPICS = ("orders", "stock", "a.b", "höhe", "x")
SHUTTING_DOWN = 503


class ConnectionLost(Exception):  # noqa: N818 -- nothing is wrong
    """The broker or the connection was closed."""


@dataclass(frozen=True, slots=True)
class Unit:
    numbers: range
    frames: bytes
    ack: bytes
    batch_id: str = ""


class Publisher(threading.Thread):
    listener = "hermod.pub"

    def __init__(self, name: str, broker: RestartableBroker, random: Random) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self.random = random
        self.sent: list[tuple[str, bytes]] = []
        """The topic and payload of each number."""
        self.acked: set[int] = set()
        self.refused: set[int] = set()
        self.pending: deque[Unit] = deque()
        self.ending = threading.Event()
        self.wrong = ""

    def run(self) -> None:
        while self.pending or not self.ending.is_set():
            port = self.broker.port(self.listener, self.ending)
            if port is None:
                break
            try:
                with Peer(port) as peer:
                    self.run_connection(peer)
            except TimeoutError:
                self.wrong = "an acknowledgement is missing"
                return
            except (ConnectionLost, OSError):
                pass
            self.lost()

    def run_connection(self, peer: Peer) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is gone."""
        self.pending.clear()

    def make_message(self) -> bytes:
        number = len(self.sent)
        topic = self.random.choice((*TOPICS, self.name))
        payload = b"%b %d " % (self.name.encode(), number) + self.make_filling()
        self.sent.append((topic, payload))
        return self.to_frame(topic, payload)

    def make_filling(self) -> bytes:
        size = self.random.choice((0, 10, 100, 100, 100, 1000)) if self.random.random() < 0.99 else 200_000
        return self.random.randbytes(size)

    def to_frame(self, topic: str, payload: bytes) -> bytes:
        return hermod.message(topic, payload, "")


class Acknowledged(Publisher):
    ahead = 300
    """Unacknowledged units at a time."""
    repeats = False
    """Whether lost messages are sent again."""

    def make_unit(self) -> Unit:
        raise NotImplementedError

    def run_connection(self, peer: Peer) -> None:
        peer.send(b"".join(unit.frames for unit in self.pending))
        while True:
            if not self.ending.is_set():
                peer.send(b"".join(self.more()))
            if not self.pending:
                return
            self.read_acks(peer)

    def more(self) -> Iterable[bytes]:
        room = self.ahead - len(self.pending)
        for _ in range(self.random.randint(min(1, room), room)):
            unit = self.make_unit()
            self.pending.append(unit)
            yield unit.frames

    def read_acks(self, peer: Peer) -> None:
        """Some responses, at least one."""
        data = peer.socket.recv(1 << 16)
        if not data:
            raise ConnectionLost
        *lines, peer.read = (peer.read + data).split(b"\n")
        for line in lines:
            self.take(line)

    def take(self, line: bytes) -> None:
        ack = json.loads(line)
        if ack["status"] == "ERROR" and ack["code"] == SHUTTING_DOWN:
            raise ConnectionLost
        unit = self.pending.popleft()
        if ack["status"] == "ERROR":
            self.refused.update(unit.numbers)
            if ack["code"] != 500:
                self.wrong = f"got {line!r}"
        else:
            self.acked.update(unit.numbers)
            if line + b"\n" != unit.ack:
                self.wrong = f"expected {unit.ack!r}, got {line!r}"

    def lost(self) -> None:
        if not self.repeats:
            super().lost()


class Singles(Acknowledged):
    def make_unit(self) -> Unit:
        number = len(self.sent)
        return Unit(range(number, number + 1), self.make_message(), hermod.OK)


class Batches(Acknowledged):
    ahead = 3

    def make_unit(self) -> Unit:
        first, size = len(self.sent), self.random.randint(1, 200)
        frames = b"".join(self.make_message() for _ in range(size))
        return Unit(range(first, first + size), hermod.count(size) + frames, hermod.ok(size))


class IdempotentBatches(Acknowledged):
    """Some messages are repeated after their acknowledgement."""

    ahead = 3
    repeats = True

    def __init__(self, name: str, broker: RestartableBroker, random: Random) -> None:
        super().__init__(name, broker, random)
        self.units: list[Unit] = []

    def make_unit(self) -> Unit:
        if self.units and self.random.random() < 0.2:
            old = self.random.choice(self.units[-20:])
            if old.numbers[0] in self.acked:
                return old
        first, size = len(self.sent), self.random.randint(1, 100)
        batch_id = f"{self.name}-{first}"
        frames = b"".join(self.make_message() for _ in range(size))
        header = hermod.count(size, batch_id=batch_id)
        unit = Unit(range(first, first + size), header + frames, hermod.ok(size), batch_id)
        self.units.append(unit)
        return unit


class Unacknowledged(Publisher):
    """Over simplest nothing is acknowledged; what arrives, arrives once and in order."""

    listener = "simplest"
    pause = 0.01

    def run_connection(self, peer: Peer) -> None:
        while not self.ending.is_set():
            peer.send(b"".join(self.make_message() for _ in range(self.random.randint(1, 20))))
            self.ending.wait(self.pause)

    def to_frame(self, topic: str, payload: bytes) -> bytes:
        return b"pub %b %d %b\n" % (topic.encode(), len(payload), payload)


def all_publishers(broker: RestartableBroker, random: Random) -> Iterator[Publisher]:
    kinds = (Singles, Singles, Batches, IdempotentBatches, IdempotentBatches, Unacknowledged)
    for number, kind in enumerate(kinds):
        yield kind(f"{kind.__name__.lower()}-{number}", broker, Random(random.random()))
