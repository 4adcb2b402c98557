"""Numbered messages, until a subscriber that does not read is served from the log."""

from __future__ import annotations

import socket

from kit.broker import Broker
from kit.flow import KIB, MIB, Reading
from kit.replay import publish, total
from kit.subscribers import SubscriberKind
from kit.wire import Peer

QUEUE_BYTES = 64 * KIB
PIECE_BYTES = 16 * KIB
SMALL_QUEUE = f"--set=limits.queue_bytes={QUEUE_BYTES}"
TRIES = 4000
"""More pieces than a socket can buffer."""


def payload(number: int) -> bytes:
    return b"%08d" % number * (PIECE_BYTES // 8)


class NumberedPublisher:
    """Publishes numbered messages and counts them; at several brokers in turn."""

    def __init__(self, broker: Broker, topic: str = "flow", *others: Broker) -> None:
        self._broker = broker
        self._topic = topic
        self._peers = [each.connect("hermod.pub") for each in (broker, *others)]
        self.count = 0

    def __enter__(self) -> NumberedPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers:
            peer.close()

    def publish(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        publish(self._peers[0], [(self._topic, payload(number)) for number in numbers])
        self._peers.append(self._peers.pop(0))
        self.count += count

    def publish_until_spilled(self, spilled: int = 1) -> None:
        """At the first broker. Then publishes a few more."""
        while total(self._broker, "subscribers_spilled_total") < spilled:
            assert self.count < TRIES
            self.publish(20)
        self.publish(100)


def expect_all(kind: SubscriberKind, peer: Peer, numbers: range, topic: str = "flow") -> None:
    """Receives exactly these messages next."""
    peer.socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, MIB
    )  # from here on, the subscriber reads as fast as it can
    wanted = b"".join(kind.frame(topic, number, payload(number)) for number in numbers)
    found = Reading(peer, len(wanted)).finish()
    peer.read = found[len(wanted) :]
    assert len(found) >= len(wanted), f"{len(found):,} of {len(wanted):,} bytes came"
    assert found[: len(wanted)] == wanted
