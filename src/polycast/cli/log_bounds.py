"""The offsets of the last messages of some patterns, and the end of the broker's log."""

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
    """The offset of the first of the last `count` messages that match; without a match, the first offset of the
    log."""
    offsets = sorted({offset for pattern in patterns for offset in _offsets(client, pattern, limit=count)})
    return StartPosition(offset=offsets[-count:][0]) if offsets else StartPosition()


def find_ends(client: Client, patterns: list[Pattern], start: StartFrom) -> set[int]:
    """The offset of the last message of each pattern, for patterns with a message from `start` on."""
    from polycast.dialects.start_positions import to_json_start

    ends: set[int] = set()
    for pattern in patterns:
        begin = to_json_start(start if isinstance(start, StartPosition) else None, [pattern])
        if _offsets(client, pattern, limit=1, **{"from": begin}):
            ends.update(_offsets(client, pattern, limit=1))
    return ends


def _offsets(client: Client, pattern: Pattern, **fields: Any) -> list[int]:
    """The offsets of messages in the log that match."""
    from polycast.client import to_body

    response = client.request(ROUTE, to_body({"pattern": str(pattern), "bodies": False, **fields}))
    if not response.success:
        text = str(response.value)
        code = FORBIDDEN if text == "Forbidden" else NO_LOG if text.startswith("NoLog") else 0
        raise RefusedError(f"{client.address}: {text}", code)
    return [row["offset"] for row in response.value if "offset" in row]
