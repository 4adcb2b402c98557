"""Publishers in all dialects and subscribers, at any node, that go on at another one when theirs is gone."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from crash.live_subscriber import LiveSubscriber, digest
from crash.publishers import (
    Batches,
    ConnectionLost,
    IdempotentBatches,
    Publisher,
    Singles,
    Unacknowledged,
)
from kit import hermod, nanomsg
from kit.frames import read_pubs
from kit.ubre import line
from kit.wire import Peer

SILENCE_SECONDS = 4.0
"""A client that receives nothing for so long goes to another node."""
SIZES = (0, 10, 100, 100, 300)
LARGE = 1_700_000
"""More than one message of the stream takes."""


class AckClock:
    """The longest time without any acknowledgement."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.longest = 0.0

    def note(self) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self._last)
        self._last = now


class Roaming(Publisher):
    """Goes to another node when no reply arrives. The outcome of what it had sent is then unknown."""

    clock: AckClock
    ahead = 10
    acknowledges = False
    pause: float

    def __init__(self, name: str, broker: Any, random: Random) -> None:
        super().__init__(name, broker, random)
        self.lives: list[int] = []
        """The first number of each connection."""

    def run_connection(self, peer: Peer) -> None:
        self.lives.append(len(self.sent))
        peer.socket.settimeout(SILENCE_SECONDS)
        try:
            super().run_connection(peer)
        except TimeoutError as error:
            raise ConnectionLost from error

    def make_filling(self) -> bytes:
        size = LARGE if self.random.random() < 0.0002 else self.random.choice(SIZES)
        return self.random.randbytes(size // 2).hex().encode()


class RoamingAcknowledged(Roaming):
    acknowledges = True
    pause = 0.05

    def more(self) -> Iterable[bytes]:
        self.ending.wait(self.pause)
        return super().more()  # type: ignore[misc, no-any-return]

    def take(self, response: bytes) -> None:
        super().take(response)  # type: ignore[misc]
        self.clock.note()


class RoamingSingles(RoamingAcknowledged, Singles):
    pass


class RoamingBatches(RoamingAcknowledged, Batches):
    ahead = 2


class RoamingIdempotent(RoamingAcknowledged, IdempotentBatches):
    ahead = 2


class Plain(Roaming, Unacknowledged):
    """Over a dialect without acknowledgements."""

    pause = 0.2


class Simplest(Plain):
    pass


class Ubre(Plain):
    listener = "ubre"

    def to_frame(self, topic: str, payload: bytes) -> bytes:
        return line(publish=topic, body=payload.decode())


class Fanout(Plain):
    listener = "fanout.controller"

    def to_frame(self, topic: str, payload: bytes) -> bytes:
        return b"%b %b\n" % (topic.encode(), payload)


class Nanomsg(Plain):
    listener = "nanomsg.sub"

    def run_connection(self, peer: Peer) -> None:
        peer.send(nanomsg.PUB)
        peer.socket.settimeout(SILENCE_SECONDS)
        try:
            peer.expect(nanomsg.SUB)
        except (TimeoutError, AssertionError) as error:
            raise ConnectionLost from error
        super().run_connection(peer)

    def to_frame(self, topic: str, payload: bytes) -> bytes:
        return struct.pack(">Q", len(topic.encode()) + 1 + len(payload)) + topic.encode() + b"|" + payload


KINDS = (RoamingSingles, RoamingSingles, RoamingBatches, RoamingIdempotent, RoamingIdempotent,
         Simplest, Ubre, Fanout, Nanomsg)  # fmt: skip


def all_publishers(
    fleet: Any, random: Random, clock: AckClock, more: Sequence[type[Roaming]], slower: float
) -> Iterator[Roaming]:
    """`slower`: a long run holds all that was sent in memory, and so do its checks."""
    kinds: list[type[Roaming]] = [*KINDS, *more]
    for number, kind in enumerate(kinds):
        publisher: Roaming = kind(f"{kind.__name__.lower()}-{number}", fleet, Random(random.random()))
        publisher.clock = clock
        publisher.pause *= slower
        yield publisher


# -- subscribers -----------------------------------------------------------------------------------------


class Seen(NamedTuple):
    offset: int
    topic: str
    sequence: int
    payload: bytes
    """Its digest."""


class Resuming(LiveSubscriber):
    """hermod: subscribes from its last offset on, at any node. Changes its node now and then."""

    def __init__(self, fleet: Any, random: Random) -> None:
        super().__init__(fleet)
        self._random = random
        self.seen: list[Seen] = []
        self._log = ""
        self.moves = self.behind = 0
        self._quiet = 0.0

    @property
    def next(self) -> int:
        return self.seen[-1].offset + 1 if self.seen else 0

    def listen(self, peer: Peer) -> None:
        self.moves += 1
        self._quiet = time.monotonic()
        more = {"log": self._log} if self._log else {}
        peer.send(
            hermod.topics(patterns=[">"], offsets=True, delivery="committed", **{"from": f"@{self.next}"}, **more)
        )
        while b"\n" not in peer.read:
            self.receive(peer)
        reply, _, peer.read = peer.read.partition(b"\n")
        response = json.loads(reply)
        self._log = response.get("log", self._log)
        if response["status"] != "OK":
            self.behind += 1
            if response["code"] == 503:
                raise EOFError  # this node is behind, or is shutting down
            self.wrong = f"refused at {self.next:,}: {reply!r}"
            raise EOFError
        enough = self.next + self._random.randint(100, 5000)
        while not self.ending.is_set() and self.next < enough:
            self.receive(peer)
            peer.read = peer.read[self.take(peer.read) :]

    def receive(self, peer: Peer) -> None:
        before = len(peer.read)
        super().receive(peer)
        now = time.monotonic()
        if len(peer.read) > before:
            self._quiet = now
        elif now - self._quiet > SILENCE_SECONDS:
            raise EOFError

    def take(self, data: bytes) -> int:
        at = 0
        while (brace := data.find(b"}", at)) >= 0:
            header = json.loads(data[at : brace + 1])
            if header.get("code") == 410:
                self.wrong = f"notice of a loss: {header}"
            if "status" in header:
                raise EOFError
            end = brace + 1 + header["payload_size"]
            if end > len(data):
                break
            payload = digest(data[brace + 1 : end])
            self.seen.append(Seen(header["offset"], header["topic"], header["sequence"], payload))
            at = end
        return at


class Listening(threading.Thread):
    """simplest: cannot resume. What it misses and gets again while it changes its node is counted."""

    def __init__(self, fleet: Any) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self.seen: list[tuple[str, bytes]] = []
        self.ending = threading.Event()

    def run(self) -> None:
        while (port := self._fleet.port("simplest", self.ending)) and not self.ending.is_set():
            try:
                with Peer(port) as peer:
                    peer.socket.settimeout(SILENCE_SECONDS)
                    peer.send(b"sub \n")
                    self._listen(peer)
            except OSError:
                continue

    def _listen(self, peer: Peer) -> None:
        rest = b""
        while not self.ending.is_set() and (data := peer.socket.recv(1 << 20)):
            found, rest = read_pubs(rest + data)
            self.seen += [(topic, digest(payload)) for topic, payload in found]
