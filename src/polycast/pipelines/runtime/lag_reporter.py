"""Tells the broker how far a query has come, so that its lag is seen there.

It is a favour, not a duty: a broker that is not there, or does not know what this is about, disturbs nothing.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from polycast.client import Client, connect
from polycast.dialects.client_requests import to_body
from polycast.errors import PolycastError

ROUTE = "polycast/positions"
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 5.0
RETRY_SECONDS = 10.0
"""How long a broker that was not there is left alone."""


class LagReporter:
    """`tell` never waits: what is not told yet gives way to what is newer."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._newest: dict[str, Any] | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._client: Client | None = None
        self._silent_until = 0.0
        self._thread = threading.Thread(target=self._run, name="positions", daemon=True)
        self._thread.start()

    def tell(self, query: str, **position: Any) -> None:
        with self._changed:
            self._newest = {"query": query, **position}
            self._changed.notify()

    def close(self) -> None:
        """What was told last is told, if anybody listens."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CONNECT_SECONDS + ANSWER_SECONDS)

    def _run(self) -> None:
        while (position := self._take()) is not None:
            if time.monotonic() >= self._silent_until:
                self._send(position)
        self._hang_up()

    def _take(self) -> dict[str, Any] | None:
        with self._changed:
            while self._newest is None and not self._closed:
                self._changed.wait()
            taken, self._newest = self._newest, None
            return taken

    def _send(self, position: dict[str, Any]) -> None:
        try:
            if self._client is None:
                self._client = connect("hermod", self._at, publishing=True, timeout=CONNECT_SECONDS)
            self._client.request(ROUTE, to_body(position), ANSWER_SECONDS)
        except (PolycastError, OSError):
            self._hang_up()
            self._silent_until = time.monotonic() + RETRY_SECONDS

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client:
            try:
                client.close()
            except (PolycastError, OSError):
                return
