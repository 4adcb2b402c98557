"""Refusals: input that the broker passes over. They are counted, reported as events, and the first are logged."""

from __future__ import annotations

import logging

from polycast.server.dispatch.broker_events import BrokerEvents
from polycast.server.io.connection import DETAILS_AT_MOST, Connection

log = logging.getLogger("polycast.dispatch")

FORBIDDEN = "Forbidden"


class Refusals:
    def __init__(self, events: BrokerEvents) -> None:
        self._events = events

    def refuse(self, connection: Connection, reason: str, count: int = 1, detail: str = "") -> None:
        refused = connection.listener.counters.refused
        refused[reason] += count
        self._events.refuse(connection, reason, count)
        level = logging.INFO if detail and refused[reason] <= DETAILS_AT_MOST else logging.DEBUG
        log.log(level, "%s: refused: %s", connection, detail or reason)
