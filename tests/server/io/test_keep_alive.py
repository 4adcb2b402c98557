"""Sessions that send a comment while there are no messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from polycast.dialects.session import Session, SessionContext
from polycast.dialects.web.event_stream import EventStreamSession
from polycast.server.server import KEEP_ALIVE_SECONDS, Server
from polycast.server.settings import Settings


class Silent:
    """A connection without traffic since 0."""

    closing = False
    touched_at = opened_at = unauthorized_since = 0.0

    def __init__(self, session: Session, queued: int) -> None:
        self.session = session
        self.sent: list[bytes] = []
        self.queue = SimpleNamespace(push=lambda blocks, size, messages: self.sent.extend(blocks), flush=list)
        self.queued = lambda: queued


@pytest.mark.parametrize(
    ("session", "seconds", "queued", "sent"),
    [
        (EventStreamSession(SessionContext(), [], None), KEEP_ALIVE_SECONDS, 0, [b":\n\n"]),
        (EventStreamSession(SessionContext(), [], None), KEEP_ALIVE_SECONDS - 0.1, 0, []),
        (EventStreamSession(SessionContext(), [], None), KEEP_ALIVE_SECONDS, 1, []),
        (Session(SessionContext()), KEEP_ALIVE_SECONDS, 0, []),
    ],
)
def test_a_silent_connection(session: Session, seconds: float, queued: int, sent: list[bytes]) -> None:
    connection: Any = Silent(session, queued)
    server: Any = SimpleNamespace(core=SimpleNamespace(settings=Settings()))
    Server._check_time(server, connection, seconds)
    assert connection.sent == sent
