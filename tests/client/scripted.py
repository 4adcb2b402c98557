"""A broker that follows the script of a test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType

from kit.wire import GUARD_SECONDS

Script = Callable[[socket.socket], None]


class Scripted:
    """`with Scripted(script) as at: connect("hermod", at)`; what goes wrong in a script fails the test.

    Each script serves one connection, one after the other.
    """

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._failure: BaseException | None = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(GUARD_SECONDS)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(GUARD_SECONDS)
        self._server.close()
        if self._failure and error is None:
            raise self._failure

    def _run(self) -> None:
        try:
            for script in self._scripts:
                connection, _ = self._server.accept()
                with connection:
                    connection.settimeout(GUARD_SECONDS)
                    script(connection)
        except BaseException as error:
            self._failure = error


def read_exactly(connection: socket.socket, data: bytes) -> None:
    found = b""
    while len(found) < len(data) and (more := connection.recv(len(data) - len(found))):
        found += more
    assert found == data, f"expected {data!r}, got {found!r}"


def read_to_end(connection: socket.socket) -> bytes:
    found = b""
    while more := connection.recv(1 << 20):
        found += more
    return found
