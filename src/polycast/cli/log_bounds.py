"""Where in the broker's log the last messages begin, and where the log ends, for some patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polycast.cli.rights import FORBIDDEN
from polycast.errors import RefusedError
from polycast.model import Pattern, StartPosition

if TYPE_CHECKING:
    from polycast.client import Client
    from polycast.dialects.client_subscriptions import StartFrom

ROUTE = "polycast/history"
LAST_AT_MOST = 10_000
"""The broker's limit for one request."""
NO_LOG = 501


def find_last(client: Client, patterns: list[Pattern], count: int) -> StartPosition:
    """The first of the last messages that match. If none does yet: the beginning, so that none is left out."""
    offsets = sorted({offset for pattern in patterns for offset in _offsets(client, pattern, limit=count)})
    return StartPosition(offset=offsets[-count:][0]) if offsets else StartPosition()


def find_ends(client: Client, patterns: list[Pattern], start: StartFrom) -> set[int]:
    """The offset of the last message of each pattern, unless it has none from `start` on."""
    from polycast.dialects.start_positions import to_json_start

    ends: set[int] = set()
    for pattern in patterns:
        begin = to_json_start(start if isinstance(start, StartPosition) else None, [pattern])
        if _offsets(client, pattern, limit=1, **{"from": begin}):
            ends.update(_offsets(client, pattern, limit=1))
    return ends


def _offsets(client: Client, pattern: Pattern, **asked: Any) -> list[int]:
    """Of the messages that the log has."""
    from polycast.client import to_body

    response = client.request(ROUTE, to_body({"pattern": str(pattern), "bodies": False, **asked}))
    if not response.success:
        text = str(response.value)
        code = FORBIDDEN if text == "Forbidden" else NO_LOG if text.startswith("NoLog") else 0
        raise RefusedError(f"{client.address}: {text}", code)
    return [row["offset"] for row in response.value if "offset" in row]
