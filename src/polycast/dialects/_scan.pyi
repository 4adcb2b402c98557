from collections.abc import Sequence

from polycast.dialects.scan import Divided, Scan
from polycast.model import Block

def pubs(block: Block, position: int, topic_limit: int, payload_limit: int) -> Scan: ...
def lines(block: Block, position: int, topic_limit: int, line_limit: int, payload_limit: int) -> Scan: ...
def bodies(
    block: Block,
    position: int,
    typed: bool,
    separator: int,
    topic_limit: int,
    payload_limit: int,
    body_limit: int,
) -> Scan: ...
def divided(
    block: Block, starts: Sequence[int], ends: Sequence[int], separator: int, topic_limit: int
) -> Divided: ...
def join_frames(block: Block, bounds: Sequence[int], edges: Sequence[int]) -> bytes: ...
def mark_frames(
    block: Block, bounds: Sequence[int], starts: Sequence[int], edges: Sequence[int], mark: int
) -> bytes: ...
