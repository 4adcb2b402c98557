"""Reads the rows of a commit from the stream: its staged frames.

A commit names the stream sequences of its frames. All nodes read the same bytes there, so all publish the same
rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from polycast.broker import Proposal, StagedFrame
from polycast.cluster.messages import join_frame, read_commit, to_proposal
from polycast.cluster.reader import RemovedError
from polycast.cluster.stream import NOT_FOUND, ApiError, Stream

log = logging.getLogger("polycast.cluster")

AGAIN_SECONDS = 0.2


async def read_commit_rows(stream: Stream, body: memoryview, sequence: int) -> Proposal:
    """`sequence`: of the commit. Raises ForeignMessageError if the commit names other messages than frames before
    it, RemovedError if the stream has removed a frame."""
    proposed, columns = read_commit(body, sequence)
    frames = [await read_frame(stream, sequences) for sequences in columns.frames]
    return await asyncio.to_thread(to_proposal, proposed, columns, frames)


async def read_frame(stream: Stream, sequences: Sequence[int]) -> StagedFrame:
    return join_frame([await _get(stream, sequence) for sequence in sequences], sequences)


async def _get(stream: Stream, sequence: int) -> bytes:
    """Waits while there is no leader. A server that has just become the leader may not have the message yet."""
    while True:
        try:
            return await stream.get(sequence)
        except ApiError as error:
            log.debug("message %s: %s", sequence, error)
            if error.code == NOT_FOUND and await _is_removed(stream, sequence):
                raise RemovedError(f"the stream has removed message {sequence:,}, which a commit needs") from error
        await asyncio.sleep(AGAIN_SECONDS)


async def _is_removed(stream: Stream, sequence: int) -> bool:
    try:
        info = await stream.info()
    except ApiError:
        return False
    return info is None or sequence < info.first
