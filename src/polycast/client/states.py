"""The states of a client's connection, for `on_state`."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from polycast.errors import RemoteError


class State(StrEnum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    """Connected; after a reconnect, messages since the disconnect may be lost."""
    RESUMED = "resumed"
    """Reconnected; every subscription continues after its last message."""
    DISCONNECTED = "disconnected"
    """The connection is lost, or an attempt to connect failed; `error` says why."""
    GAP = "gap"
    """The log cannot deliver the messages from the offset `first` up to `next`."""
    CLOSED = "closed"


class StateChange(NamedTuple):
    state: State
    address: str
    error: RemoteError | None = None
    first: int | None = None
    next: int | None = None
    text: str = ""
    """One line for people."""


OnState = Callable[[StateChange], object]
