"""The tail of the stream: whether the message that a node applied last is still there.

A stream that lost messages and grew again is as long as it was. Its sequences do not tell that it has others.
"""

from __future__ import annotations

import xxhash

from polycast.cluster.stream import NOT_FOUND, ApiError, Stream
from polycast.errors import ClusterError

HINT = "nothing was changed; polycast cluster restore --replace creates a new stream from the longest log"


def tail_digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


async def is_replaced(stream: Stream, sequence: int, digest: str) -> bool:
    """Whether the stream has another message there. A message that the stream does not have tells nothing. Raises
    ApiError if the stream does not respond."""
    if not digest:
        return False
    try:
        return tail_digest(await stream.get(sequence)) != digest
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise
        return False


async def check_tail(stream: Stream, sequence: int, digest: str) -> None:
    """Raises ClusterError if the stream has another message than the one that was applied."""
    if await is_replaced(stream, sequence, digest):
        raise ClusterError(f"message {sequence:,} of the stream is not the one that this node has applied", HINT)
