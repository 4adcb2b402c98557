"""The messages of one `publish` call, in blocks. Blocks that a lost connection did not acknowledge are sent again.

A block that may be sent again has a batch id, `polycast/client/CLIENT/NUMBER`: the broker publishes it once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from uuid import uuid4

from polycast.dialects.client_session import ClientSession, PendingAcks
from polycast.model import CLIENT_BATCHES, Message


def new_batch_ids() -> Iterator[str]:
    """For one client. The broker remembers the last ones of each client (`log.batch_ids`)."""
    client = uuid4().hex
    return (f"{CLIENT_BATCHES}{client}/{number}" for number in count())


@dataclass(slots=True, eq=False)
class Block:
    data: bytes
    count: int
    batch_id: str
    acks: PendingAcks = field(default_factory=PendingAcks)


class Publication:
    def __init__(self, session: ClientSession, messages: Iterable[Message], batch_ids: Iterator[str]) -> None:
        """`session` encodes the messages; any session of the dialect would encode them in the same way."""
        self._encoded = session.encoded(messages)
        self._batch_ids = batch_ids
        self._unacknowledged: deque[Block] = deque()
        self._total = PendingAcks()

    def blocks(self) -> Iterator[Block]:
        """Blocks to send: unacknowledged blocks of the last connection first."""
        yield from list(self._unacknowledged)
        for data, number in self._encoded:
            yield Block(data, number, next(self._batch_ids))

    def to_frame(self, block: Block, session: ClientSession) -> bytes:
        """To be sent at once: acknowledgements come in the order of the frames."""
        block.acks = PendingAcks()
        if block not in self._unacknowledged:
            self._unacknowledged.append(block)
            self._total.sent += block.count
        if session.resends:
            return session.to_block_with_id(block.data, block.count, block.acks, block.batch_id)
        frame = session.to_block(block.data, block.count, block.acks)
        session.unacknowledged = session.unacknowledged or not block.acks.pending
        return frame

    def may_resend(self, session: ClientSession) -> bool:
        """Whether nothing is lost or repeated if another connection continues where `session` ended."""
        return session.resends or (not session.unacknowledged and not self._unacknowledged)

    @property
    def refused(self) -> bool:
        self._release_blocks()
        return self._total.error is not None

    @property
    def done(self) -> bool:
        self._release_blocks()
        return not self._unacknowledged

    def check(self, session: ClientSession) -> None:
        """Raises RefusedError if the broker refused anything."""
        self._release_blocks()
        session.check(self._total)

    def _release_blocks(self) -> None:
        while self._unacknowledged and not self._unacknowledged[0].acks.pending:
            acks = self._unacknowledged.popleft().acks
            self._total.accepted += acks.accepted
            self._total.error = self._total.error or acks.error
