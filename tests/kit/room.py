"""Peers of one broker, and fences between them.

Only subscriptions that name `polycast/` match topics under it, so a subscriber of all topics receives no fences.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from kit.broker import Broker
from kit.wire import Peer

GREETING = b"debug!connected...\n"


class Room:
    """`with Room(broker) as room: one = room.simplest(b"sub x\\n")`; whatever `one` sent has been handled then."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._peers = ExitStack()
        self._fences = 0

    def __enter__(self) -> Room:
        self._witness = self.client(b"unsubscribe all\nsubscribe polycast/fence\n")
        self._publisher = self.connect("simplest")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._peers.close()

    def connect(self, listener: str, receive_bytes: int = 0) -> Peer:
        return self._peers.enter_context(self._broker.connect(listener, receive_bytes))

    def simplest(self, commands: bytes = b"", receive_bytes: int = 0, listener: str = "simplest") -> Peer:
        peer = self.connect(listener, receive_bytes)
        self.send_commands(peer, commands)
        return peer

    def client(self, commands: bytes = b"", receive_bytes: int = 0) -> Peer:
        """A fanout client that has been greeted."""
        peer = self.connect("fanout.client", receive_bytes)
        peer.expect(GREETING)
        self.send_as_client(peer, commands)
        return peer

    def controller(self) -> Peer:
        return self.connect("fanout.controller")

    # -- fences ------------------------------------------------------------------------------------------

    def send_commands(self, peer: Peer, commands: bytes) -> None:
        """Sends over simplest, and waits until the broker has handled it."""
        number = self._next_fence()
        peer.send(commands + b"pub polycast/fence %d %b\n" % (len(number), number))
        self._witness.expect(b"polycast/fence!%b\n" % number)

    def send_as_controller(self, controller: Peer, lines: bytes) -> None:
        """Sends as a fanout controller, and waits until the broker has handled it."""
        number = self._next_fence()
        controller.send(lines + b"polycast/fence %b\n" % number)
        self._witness.expect(b"polycast/fence!%b\n" % number)

    def send_as_client(self, client: Peer, lines: bytes = b"") -> None:
        """Sends as a fanout client; nothing but the reply to the `time` behind it may come."""
        client.send(lines + b"time\n")
        reply = client.read_until(b"\n")
        assert reply.strip().isdigit(), f"expected the time, got {reply!r}"

    def expect_quiet(self, peer: Peer) -> None:
        """Nothing that was handled up to now has sent anything to this simplest peer."""
        received = self.received_by(peer)
        assert received == b"", f"expected nothing, got {received!r}"

    def received_by(self, peer: Peer) -> bytes:
        """What has been sent to this simplest peer up to now."""
        number = self._next_fence()
        fence = b"pub polycast/quiet %d %b\n" % (len(number), number)
        self.send_commands(peer, b"sub polycast/quiet\n")
        self.send_commands(self._publisher, fence)
        return peer.read_until(fence).removesuffix(fence)

    def _next_fence(self) -> bytes:
        self._fences += 1
        return b"%d" % self._fences
