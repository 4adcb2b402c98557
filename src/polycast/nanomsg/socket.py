"""The API of nn_pubsub(7) for Python: sockets that publish and subscribe, with no broker between them."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from polycast.nanomsg.addresses import listen, parse
from polycast.nanomsg.endpoints import Dialer, InprocListener, SocketListener
from polycast.nanomsg.publisher_core import PublisherCore
from polycast.nanomsg.sessions import Kind
from polycast.nanomsg.socket_core import Endpoint, Options
from polycast.nanomsg.subscriber_core import SubscriberCore

MESSAGE_BYTES = 1024 * 1024
QUEUE_BYTES = 4 * 1024 * 1024
LINGER_SECONDS = 1.0

Data = bytes | bytearray | memoryview


class Socket:
    """`Socket(PUB)` sends to all peers, `Socket(SUB)` receives messages that start with a subscribed topic.

    message_bytes    the largest message that is received; a peer that sends a larger one is disconnected
    queue_bytes      PUB: bytes queued for one subscriber; messages beyond that are dropped for it
                     SUB: bytes queued for `recv`; beyond that, publishers are not read (backpressure)
    linger_seconds   how long `close` flushes sent messages

    All methods may be called from any thread. On a closed socket they raise OSError with EBADF.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        message_bytes: int = MESSAGE_BYTES,
        queue_bytes: int = QUEUE_BYTES,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        self.kind = Kind(kind)
        if message_bytes < 1 or queue_bytes < 1 or linger_seconds < 0:
            raise ValueError("message_bytes and queue_bytes must be 1 or more, linger_seconds 0 or more")
        options = Options(message_bytes, queue_bytes, linger_seconds)
        self._core: PublisherCore | SubscriberCore = (
            PublisherCore(options) if self.kind is Kind.PUB else SubscriberCore(options)
        )

    # -- endpoints ---------------------------------------------------------------------------------------

    def bind(self, url: str) -> str:
        """Listens at the address and returns it; port 0 becomes a free port."""
        core, address = self._open_core(), parse(url)
        if address.scheme == "inproc":
            self._add(InprocListener(core, address, url))
            return url
        listening, real = listen(address)
        self._add(SocketListener(core, real, str(real), listening))
        return str(real)

    def connect(self, url: str) -> None:
        """Dials, and dials again whenever the connection is down. The peer may start later."""
        self._add(Dialer(self._open_core(), parse(url), url))

    def _add(self, endpoint: Endpoint) -> None:
        if not self._core.reactor.run(self._core.add(endpoint)):
            self._open_core()

    @property
    def peers(self) -> int:
        return len(self._core.peers)

    def wait_for_peers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until `count` peers are connected; what a PUB sends from then on goes to all of them."""
        if not self._open_core().wait_for_peers(count, timeout):
            self._open_core()
            raise _timed_out(f"{self.peers} of {count} peers", timeout)

    # -- messages ----------------------------------------------------------------------------------------

    def send(self, data: Data, timeout: float | None = None) -> int:
        """Sends to all connected subscribers without waiting for them; returns the number of bytes."""
        core = self._open_core()
        if not isinstance(core, PublisherCore):
            raise _refused(errno.ENOTSUP, "a SUB socket cannot send")
        message = data if type(data) is bytes else bytes(memoryview(data))
        if not core.send(message, timeout):
            raise _timed_out("no room for the message", timeout)
        return len(message)

    @property
    def missed(self) -> int:
        """The number of messages that were dropped because a subscriber's queue was full, over all subscribers."""
        return self._core.missed if isinstance(self._core, PublisherCore) else 0

    def recv(self, timeout: float | None = None) -> bytes:
        """The next message, including its topic. TimeoutError after `timeout` seconds; 0: do not wait."""
        core = self._core
        if not isinstance(core, SubscriberCore):
            self._open_core()
            raise _refused(errno.ENOTSUP, "a PUB socket cannot receive")
        message = None if core.closed else core.receive(timeout)
        if message is None:
            self._open_core()
            raise _timed_out("no message", timeout)
        return message

    def __iter__(self) -> Iterator[bytes]:
        """Messages, until the socket is closed."""
        while True:
            try:
                yield self.recv()
            except OSError as error:
                if error.errno == errno.EBADF:
                    return
                raise

    def subscribe(self, topic: Data) -> None:
        """Receives messages that start with these bytes, from now on. Empty: all messages."""
        self._subscriber().subscribe(bytes(memoryview(topic)))

    def unsubscribe(self, topic: Data) -> None:
        """Undoes one `subscribe`; a topic that is not subscribed is no error."""
        self._subscriber().unsubscribe(bytes(memoryview(topic)))

    # -- closing -----------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether `close` was called, in any thread, or the process forked since the socket was created."""
        return self._core.closed

    def close(self) -> None:
        """Flushes sent messages. A waiting `recv` raises EBADF. A second call has no effect."""
        if not self._core.closed:
            self._core.reactor.run(self._core.close())

    def __enter__(self) -> Socket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            core.reactor.spawn(core.close())

    def __repr__(self) -> str:
        return f"<Socket {self.kind.name}{', closed' if self.closed else f', {self.peers} peers'}>"

    def _open_core(self) -> PublisherCore | SubscriberCore:
        if self._core.closed:
            raise _refused(errno.EBADF, "the socket is closed")
        return self._core

    def _subscriber(self) -> SubscriberCore:
        core = self._open_core()
        if not isinstance(core, SubscriberCore):
            raise _refused(errno.ENOPROTOOPT, "a PUB socket has no subscriptions")
        return core


def _refused(number: int, reason: str) -> OSError:
    return OSError(number, f"{os.strerror(number)}: {reason}")


def _timed_out(what: str, seconds: Any) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, f"{what} within {seconds:g} s")
