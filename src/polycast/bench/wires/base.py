"""The contract of a wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Greeting:
    """What a connection says first, and the bytes it must then have seen before it goes on."""

    hello: bytes = b""
    welcome: bytes = b""


class Wire(ABC):
    """The defaults suit a protocol without ceremony. `number` counts a subscriber's topics from 1."""

    publisher = Greeting()
    subscriber = Greeting()
    keepalive = b""
    """What the server may send unasked at any moment, and need not be answered while we measure."""
    listeners: tuple[str, str] | None = None
    """Polycast's listeners for publishers and for subscribers, if this is one of its dialects."""
    selects = True
    """Whether a subscriber can ask for some topics and not for others."""
    numbered = False
    """Whether a delivery carries its place in its topic, in decimal: then its size grows as the run goes on."""

    @abstractmethod
    def subscribe(self, topic: str, number: int) -> bytes: ...

    @abstractmethod
    def publish(self, topic: str, payload: bytes) -> bytes: ...

    @abstractmethod
    def delivered(self, topic: str, payload: bytes, number: int, sequence: int) -> bytes:
        """What a subscriber is owed for one message. Only a numbered wire looks at `sequence`."""

    def sequences(self, arrived: bytes) -> dict[str, int]:
        """The first sequence of each topic in what a subscriber got; a wire that numbers nothing knows none."""
        return {}
