"""The API of nn_pubsub(7) for Python: sockets that publish and subscribe, with no broker between them."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from polycast.nanomsg.end import Kind, Options
from polycast.nanomsg.endpoints import Dialer, Endpoint, InprocListener, Listener
from polycast.nanomsg.places import listen, parse
from polycast.nanomsg.publisher import Publisher
from polycast.nanomsg.subscriber import Subscriber

MESSAGE_BYTES = 1024 * 1024
QUEUE_BYTES = 4 * 1024 * 1024
LINGER_SECONDS = 1.0

Data = bytes | bytearray | memoryview


class Socket:
    """`Socket(PUB)` sends to everybody, `Socket(SUB)` receives what begins with a topic it subscribed to.

    message_bytes    the largest message that is received; who sends a larger one is disconnected
    queue_bytes      PUB: what may wait for one subscriber, which misses what is sent beyond that
                     SUB: what may wait to be received; beyond that, publishers are read no further
    linger_seconds   how long `close` waits for what was sent to go out

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
        self._end: Publisher | Subscriber = Publisher(options) if self.kind is Kind.PUB else Subscriber(options)

    # -- endpoints ---------------------------------------------------------------------------------------

    def bind(self, url: str) -> str:
        """Listens there, and says where that is: port 0 becomes a free one."""
        end, address = self._open_end(), parse(url)
        if address.scheme == "inproc":
            self._add(InprocListener(end, address, url))
            return url
        listening, real = listen(address)
        self._add(Listener(end, real, str(real), listening))
        return str(real)

    def connect(self, url: str) -> None:
        """Dials now, and again whenever the connection is down. Nobody need be there yet."""
        self._add(Dialer(self._open_end(), parse(url), url))

    def _add(self, endpoint: Endpoint) -> None:
        if not self._end.reactor.run(self._end.add(endpoint)):
            self._open_end()

    @property
    def peers(self) -> int:
        """How many pipes are up."""
        return len(self._end.peers)

    def wait_for_peers(self, count: int = 1, timeout: float | None = None) -> None:
        """Until so many pipes are up; what a PUB sends from then on goes to all of them."""
        if not self._open_end().wait_for_peers(count, timeout):
            self._open_end()
            raise _timed_out(f"{self.peers} of {count} peers", timeout)

    # -- messages ----------------------------------------------------------------------------------------

    def send(self, data: Data, timeout: float | None = None) -> int:
        """Sends to every subscriber that is there, and says how many bytes that were. Waits for none of them."""
        end = self._open_end()
        if not isinstance(end, Publisher):
            raise _refused(errno.ENOTSUP, "a SUB socket cannot send")
        message = data if type(data) is bytes else bytes(memoryview(data))
        if not end.send(message, timeout):
            raise _timed_out("no room for the message", timeout)
        return len(message)

    @property
    def missed(self) -> int:
        """How many messages were not sent to a subscriber because its queue was full, all subscribers together."""
        return self._end.missed if isinstance(self._end, Publisher) else 0

    def recv(self, timeout: float | None = None) -> bytes:
        """The next message, its topic included. TimeoutError if none comes in time; 0: do not wait."""
        end = self._end
        if not isinstance(end, Subscriber):
            self._open_end()
            raise _refused(errno.ENOTSUP, "a PUB socket cannot receive")
        message = None if end.closed else end.receive(timeout)
        if message is None:
            self._open_end()
            raise _timed_out("no message", timeout)
        return message

    def __iter__(self) -> Iterator[bytes]:
        """What arrives, until the socket is closed."""
        while True:
            try:
                yield self.recv()
            except OSError as error:
                if error.errno == errno.EBADF:
                    return
                raise

    def subscribe(self, topic: Data) -> None:
        """Receives what begins with these bytes, from now on. No bytes: everything."""
        self._subscriber().subscribe(bytes(memoryview(topic)))

    def unsubscribe(self, topic: Data) -> None:
        """As often as it was subscribed to; a topic that is not subscribed to is no error."""
        self._subscriber().unsubscribe(bytes(memoryview(topic)))

    # -- the end -----------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether `close` was called, here or in another thread, or the process forked since it was made."""
        return self._end.closed

    def close(self) -> None:
        """What was sent still goes out. Whoever waits in `recv` gets EBADF. Closing twice is no error."""
        if not self._end.closed:
            self._end.reactor.run(self._end.close())

    def __enter__(self) -> Socket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        end = getattr(self, "_end", None)
        if end is not None and not end.closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            end.reactor.spawn(end.close())

    def __repr__(self) -> str:
        return f"<Socket {self.kind.name}{', closed' if self.closed else f', {self.peers} peers'}>"

    def _open_end(self) -> Publisher | Subscriber:
        if self._end.closed:
            raise _refused(errno.EBADF, "the socket is closed")
        return self._end

    def _subscriber(self) -> Subscriber:
        end = self._open_end()
        if not isinstance(end, Subscriber):
            raise _refused(errno.ENOPROTOOPT, "a PUB socket has no subscriptions")
        return end


def _refused(number: int, why: str) -> OSError:
    return OSError(number, f"{os.strerror(number)}: {why}")


def _timed_out(what: str, seconds: Any) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, f"{what} within {seconds:g} s")
