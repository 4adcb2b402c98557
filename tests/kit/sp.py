"""Addresses for nanomsg and nng sockets."""

from __future__ import annotations

from pathlib import Path

from kit.broker import Broker
from kit.links import free_port

SCHEMES = ("tcp", "ipc", "ws")


def url_of(broker: Broker, listener: str, scheme: str) -> str:
    """Where this listener of the broker is; over WebSocket the sub-protocol chooses it, on the port of http."""
    if scheme == "ws":
        return f"ws://127.0.0.1:{broker.ports['http']}/"
    return next(url for name, url in broker.addresses if name == listener and url.startswith(scheme))


def url_for(scheme: str, folder: Path) -> str:
    """Where nobody listens yet."""
    return f"ipc://{folder}/peer" if scheme == "ipc" else f"{scheme}://127.0.0.1:{free_port()}"
