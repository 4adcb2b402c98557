"""The process that has a socket of pynng: calls come pickled on stdin, (problem, result) goes back on stdout."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pynng


def serve() -> None:
    (_, kind, options) = pickle.load(sys.stdin.buffer)
    if tls := options.pop("tls", None):
        options["tls_config"] = _to_tls(**tls)
    with getattr(pynng, kind)(**options) as socket:
        _reply(None)
        while True:
            try:
                name, *arguments = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                _reply(_call(socket, name, arguments))
            except pynng.TryAgain:
                _reply(None)
            except pynng.NNGException as error:
                _reply(None, repr(error))


def _to_tls(mode: str, **options: str) -> Any:
    server = mode == "server"
    return pynng.TLSConfig(pynng.TLSConfig.MODE_SERVER if server else pynng.TLSConfig.MODE_CLIENT, **options)


def _call(socket: Any, name: str, arguments: list[Any]) -> Any:
    if name == "pipes":
        return len(socket.pipes)
    if name == "dial":
        return socket.dial(arguments[0], block=arguments[1]) and None
    if name == "recv":
        return socket.recv(block=arguments[0])
    return getattr(socket, name)(*arguments) and None


def _reply(value: Any, problem: str = "") -> None:
    pickle.dump((problem, value), sys.stdout.buffer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
