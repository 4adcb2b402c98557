from collections.abc import Sequence

from polycast.dialects.ubre.scan import Publications
from polycast.model import Block

def framed(
    block: Block,
    starts: Sequence[int],
    ends: Sequence[int],
    opcodes: bytes,
    bounds: Sequence[int],
    position: int,
    topic_limit: int,
    payload_limit: int,
) -> Publications: ...
def lines(block: Block, position: int, line_limit: int, topic_limit: int, payload_limit: int) -> Publications: ...
