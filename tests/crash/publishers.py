"""Publishers that record their acknowledgements.

A unit is what is answered together: a message, a batch, or a batch with an id. Every message says who sent it and
which of his it is. A publisher that loses its connection does not know what became of the units that were not
answered: those with an id it sends again, all others never.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from crash.mortal import Mortal
from kit import hermod
from kit.wire import Peer

TOPICS = ("orders", "stock", "a.b", "höhe", "x")
SHUTTING_DOWN = 503


class Gone(Exception):  # noqa: N818 -- nothing is wrong
    """The broker ended, or the connection."""


@dataclass(frozen=True, slots=True)
class Unit:
    numbers: range
    frames: bytes
    answer: bytes
    batch_id: str = ""


class Publisher(threading.Thread):
    listener = "hermod.pub"

    def __init__(self, name: str, broker: Mortal, random: Random) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self.random = random
        self.sent: list[tuple[str, bytes]] = []
        """The topic and payload of each number."""
        self.acked: set[int] = set()
        self.refused: set[int] = set()
        self.unanswered: deque[Unit] = deque()
        self.ending = threading.Event()
        self.wrong = ""

    def run(self) -> None:
        while self.unanswered or not self.ending.is_set():
            port = self.broker.port(self.listener, self.ending)
            if port is None:
                break
            try:
                with Peer(port) as peer:
                    self.speak(peer)
            except TimeoutError:
                self.wrong = "an answer did not come"
                return
            except (Gone, OSError):
                pass
            self.lost()

    def speak(self, peer: Peer) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is gone."""
        self.unanswered.clear()

    def make_message(self) -> bytes:
        number = len(self.sent)
        topic = self.random.choice((*TOPICS, self.name))
        size = self.random.choice((0, 10, 100, 100, 100, 1000)) if self.random.random() < 0.99 else 200_000
        payload = b"%b %d " % (self.name.encode(), number) + self.random.randbytes(size)
        self.sent.append((topic, payload))
        return self.to_frame(topic, payload)

    def to_frame(self, topic: str, payload: bytes) -> bytes:
        return hermod.message(topic, payload, "")


class Acknowledged(Publisher):
    ahead = 300
    """Unacknowledged units at a time."""
    repeats = False
    """Whether lost messages are sent again."""

    def make_unit(self) -> Unit:
        raise NotImplementedError

    def speak(self, peer: Peer) -> None:
        peer.send(b"".join(unit.frames for unit in self.unanswered))
        while True:
            if not self.ending.is_set():
                peer.send(b"".join(self.more()))
            if not self.unanswered:
                return
            self.hear(peer)

    def more(self) -> Iterable[bytes]:
        room = self.ahead - len(self.unanswered)
        for _ in range(self.random.randint(min(1, room), room)):
            unit = self.make_unit()
            self.unanswered.append(unit)
            yield unit.frames

    def hear(self, peer: Peer) -> None:
        """Some responses, at least one."""
        data = peer.socket.recv(1 << 16)
        if not data:
            raise Gone
        *lines, peer.read = (peer.read + data).split(b"\n")
        for line in lines:
            self.take(line)

    def take(self, line: bytes) -> None:
        answer = json.loads(line)
        if answer["status"] == "ERROR" and answer["code"] == SHUTTING_DOWN:
            raise Gone
        unit = self.unanswered.popleft()
        if answer["status"] == "ERROR":
            self.refused.update(unit.numbers)
            if answer["code"] != 500:
                self.wrong = f"got {line!r}"
        else:
            self.acked.update(unit.numbers)
            if line + b"\n" != unit.answer:
                self.wrong = f"expected {unit.answer!r}, got {line!r}"

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


class OnceBatches(Acknowledged):
    """Some messages are repeated after their acknowledgement."""

    ahead = 3
    repeats = True

    def __init__(self, name: str, broker: Mortal, random: Random) -> None:
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


class Unanswered(Publisher):
    """Over simplest nothing is acknowledged; what arrives, arrives once and in order."""

    listener = "simplest"

    def speak(self, peer: Peer) -> None:
        while not self.ending.is_set():
            peer.send(b"".join(self.make_message() for _ in range(self.random.randint(1, 20))))
            self.ending.wait(0.01)

    def to_frame(self, topic: str, payload: bytes) -> bytes:
        return b"pub %b %d %b\n" % (topic.encode(), len(payload), payload)


def everybody(broker: Mortal, random: Random) -> Iterator[Publisher]:
    kinds = (Singles, Singles, Batches, OnceBatches, OnceBatches, Unanswered)
    for number, kind in enumerate(kinds):
        yield kind(f"{kind.__name__.lower()}-{number}", broker, Random(random.random()))
