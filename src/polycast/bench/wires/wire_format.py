"""The contract of a wire format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Handshake:
    """The first bytes that a connection sends, and the bytes that it then waits for."""

    sent: bytes = b""
    expected: bytes = b""


class WireFormat(ABC):
    """The defaults suit a protocol without handshake. `number` counts a subscriber's topics from 1."""

    publisher = Handshake()
    subscriber = Handshake()
    keepalive = b""
    """A packet that the server may send at any time; the driver does not reply to it."""
    listeners: tuple[str, str] | None = None
    """For a dialect of Polycast: its listeners for publishers and for subscribers."""
    filters = True
    """Whether a subscriber can subscribe to single topics."""
    numbered = False
    """Whether a delivery carries its sequence in decimal: then its size grows during the run."""

    @abstractmethod
    def subscribe(self, topic: str, number: int) -> bytes: ...

    @abstractmethod
    def publish(self, topic: str, payload: bytes) -> bytes: ...

    def delivered(self, topic: str, payload: bytes, number: int, sequence: int) -> bytes:
        """The bytes of one delivery. Only numbered wire formats use `sequence`."""
        return self.publish(topic, payload)

    def sequences(self, arrived: bytes) -> dict[str, int]:
        """The first sequence of each topic in received bytes; empty if not `numbered`."""
        return {}
