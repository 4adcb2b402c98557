"""The log's own counters, from `/metrics` of a broker: bytes written and messages."""

from __future__ import annotations

import re
from http.client import HTTPConnection
from typing import NamedTuple

from polycast.bench.target_connections import HOST, RESPONSE_LIMIT_SECONDS
from polycast.errors import RemoteError

WRITTEN, NEXT = "polycast_log_bytes_total", "polycast_log_next_offset"


class LogCounters(NamedTuple):
    written_bytes: int = 0
    messages: int = 0

    def since(self, before: LogCounters) -> LogCounters:
        return LogCounters(self.written_bytes - before.written_bytes, self.messages - before.messages)


def read_log_counters(port: int | None) -> LogCounters:
    """None: a target without a log."""
    if port is None:
        return LogCounters()
    connection = HTTPConnection(HOST, port, timeout=RESPONSE_LIMIT_SECONDS)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return LogCounters(_value(text, WRITTEN), _value(text, NEXT))


def _value(text: str, name: str) -> int:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    if not found:
        raise RemoteError(f"the metrics have no {name}")
    return int(float(found[1]))
