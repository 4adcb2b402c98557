"""A live subscriber that records every delivered message, over all runs of a broker."""

from __future__ import annotations

import hashlib
import json
import threading

from crash.restartable import RestartableBroker
from kit import hermod
from kit.wire import Peer


class LiveSubscriber(threading.Thread):
    def __init__(self, broker: RestartableBroker) -> None:
        super().__init__(name="live-subscriber", daemon=True)
        self.broker = broker
        self.delivered: dict[tuple[str, int], bytes] = {}
        """By topic and sequence."""
        self.last: dict[str, int] = {}
        self.wrong = ""
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            port = self.broker.port("hermod.sub", self.ending)
            if port is None:
                return
            try:
                with Peer(port) as peer:
                    peer.socket.settimeout(0.2)
                    self.listen(peer)
            except (OSError, EOFError):
                continue

    def listen(self, peer: Peer) -> None:
        peer.send(hermod.topics(patterns=[">"]))
        while b"\n" not in peer.read:
            self.receive(peer)
        peer.read = peer.read.partition(b"\n")[2]
        while not self.ending.is_set():
            self.receive(peer)
            peer.read = peer.read[self.take(peer.read) :]

    def receive(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(1 << 20)
        except TimeoutError:
            return
        if not data:
            raise EOFError
        peer.read += data

    def take(self, data: bytes) -> int:
        """The bytes of complete messages."""
        at = 0
        while (brace := data.find(b"}", at)) >= 0:
            header = json.loads(data[at : brace + 1])
            if "status" in header:  # it is shutting down
                raise EOFError
            end = brace + 1 + header["payload_size"]
            if end > len(data):
                break
            self.record(header["topic"], header["sequence"], data[brace + 1 : end])
            at = end
        return at

    def record(self, topic: str, sequence: int, payload: bytes) -> None:
        if (topic, sequence) in self.delivered:
            self.wrong = f"sequence {sequence:,} of {topic} was delivered twice"
        if self.last.get(topic, -1) >= sequence:
            self.wrong = f"sequence {sequence:,} of {topic} was delivered after {self.last[topic]:,}"
        self.delivered[topic, sequence] = digest(payload)
        self.last[topic] = sequence


def digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=8).digest()
