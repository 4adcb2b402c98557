from collections.abc import Sequence

from polycast.dialects.hermod.scan import Messages, Run
from polycast.model import Block

def messages(
    block: Block,
    position: int,
    most: int,
    topic_limit: int,
    payload_limit: int,
    header_limit: int,
    unchecked: bool,
) -> Messages: ...
def digests(block: Block, starts: Sequence[int], ends: Sequence[int]) -> list[bytes]: ...
def frames(
    block: Block,
    starts: Sequence[int],
    ends: Sequence[int],
    digests: list[bytes],
    runs: list[Run],
    offset: int = ...,
    times: Sequence[int] = ...,
) -> Block: ...
