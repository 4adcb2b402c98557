"""The permissions that the account of a node needs, and what the servers refuse it.

A server does not respond to a publication that it refuses: it reports the violation later, on the connection, and
the publication itself times out.
"""

from __future__ import annotations

import logging

log = logging.getLogger("polycast.cluster")

VIOLATION = "permissions violation"


def is_violation(error: BaseException | None) -> bool:
    return VIOLATION in str(error).lower()


class PermissionRefusals:
    """Logs each violation once, with the permissions that a node needs."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._seen: set[str] = set()

    def note(self, error: BaseException) -> None:
        text = str(error).removeprefix("nats: ")
        if is_violation(error) and text not in self._seen:
            self._seen.add(text)
            log.error("the servers refuse this node: %s; %s", text, to_cure(self._stream))


def to_cure(stream: str) -> str:
    inboxes = f"to publish and subscribe to {stream}.> and _INBOX.>"
    return f"its user needs the permissions {inboxes}, and to publish to $JS.API.>"
