"""Reports a query's position to the broker, which exposes its lag.

Best effort: a missing broker, or one that does not know the route, never disturbs the query.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from polycast.client import Client, connect
from polycast.dialects.client_requests import to_body
from polycast.errors import PolycastError
from polycast.spark.brokers import Brokers

ROUTE = "polycast/positions"
CONNECT_SECONDS = 1.0
RESPONSE_SECONDS = 5.0
RETRY_SECONDS = 10.0
"""Pause after a failed report."""


def _connect(at: str) -> Client:
    return connect("hermod", at, publishing=True, timeout=CONNECT_SECONDS, reconnect=False)


class LagReporter:
    """`report` never blocks: a newer position replaces one that is still unsent."""

    def __init__(self, at: str) -> None:
        self._brokers = Brokers(at, retry_seconds=0)
        self._newest: dict[str, Any] | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._client: Client | None = None
        self._paused_until = 0.0
        self._thread = threading.Thread(target=self._run, name="positions", daemon=True)
        self._thread.start()

    def report(self, query: str, **position: Any) -> None:
        with self._changed:
            self._newest = {"query": query, **position}
            self._changed.notify()

    def close(self) -> None:
        """Sends the last position, if the broker is reachable."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CONNECT_SECONDS + RESPONSE_SECONDS)

    def _run(self) -> None:
        while (position := self._take()) is not None:
            if time.monotonic() >= self._paused_until:
                self._send(position)
        self._disconnect()

    def _take(self) -> dict[str, Any] | None:
        with self._changed:
            while self._newest is None and not self._closed:
                self._changed.wait()
            taken, self._newest = self._newest, None
            return taken

    def _send(self, position: dict[str, Any]) -> None:
        try:
            if self._client is None:
                self._client = self._brokers.run(_connect)
            self._client.request(ROUTE, to_body(position), RESPONSE_SECONDS)
        except (PolycastError, OSError):
            self._disconnect()
            self._paused_until = time.monotonic() + RETRY_SECONDS

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client:
            try:
                client.close()
            except (PolycastError, OSError):
                return
