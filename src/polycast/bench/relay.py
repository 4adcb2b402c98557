"""A relay: sends every byte of a publisher to all subscribers, without parsing. `python -m polycast.bench.relay`

The smallest target for messages that are delivered as published: its delays are those of the driver, the loopback
interface and the scheduler, which no broker can avoid.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys

HOST = "127.0.0.1"
READ_BYTES = 1024 * 1024
PUBLISH, SUBSCRIBE = "publish", "subscribe"


class Relay:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._subscribers: list[socket.socket] = []

    def listen(self, name: str) -> int:
        """The port."""
        listener = socket.create_server((HOST, 0))
        self._selector.register(listener, selectors.EVENT_READ, (name, True))
        port: int = listener.getsockname()[1]
        return port

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                name, listening = key.data
                assert isinstance(key.fileobj, socket.socket)
                if listening:
                    self._accept(key.fileobj, name)
                else:
                    self._read(key.fileobj, name)

    def _accept(self, listener: socket.socket, name: str) -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, (name, False))
        if name == SUBSCRIBE:
            self._subscribers.append(connection)

    def _read(self, connection: socket.socket, name: str) -> None:
        try:
            data = connection.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._close(connection)
        elif name == PUBLISH:
            for subscriber in self._subscribers:
                with contextlib.suppress(OSError):  # closed by a driver that failed
                    subscriber.sendall(data)

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        if connection in self._subscribers:
            self._subscribers.remove(connection)


def main() -> None:
    relay = Relay()
    for name in (PUBLISH, SUBSCRIBE):
        sys.stdout.write(f"listening {name} tcp://{HOST}:{relay.listen(name)}\n")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    relay.run()


if __name__ == "__main__":
    main()
