from collections.abc import Sequence

from polycast.dialects.hermod.scan import Messages, Quote
from polycast.model import Block, Buffer

def messages(
    block: Block,
    position: int,
    most: int,
    topic_limit: int,
    payload_limit: int,
    header_limit: int,
    unchecked: bool,
) -> Messages: ...
def digests(block: Block, starts: Sequence[int], ends: Sequence[int]) -> bytes: ...
def frames(
    block: Block,
    starts: Sequence[int],
    ends: Sequence[int],
    digests: Block,
    topics: list[bytes],
    run_ends: list[int],
    sequences: list[int],
    edges: Sequence[int],
    quote: Quote,
    offset: int = ...,
    times: Sequence[int] = ...,
) -> Block: ...
def scattered_frames(
    block: Block,
    starts: Sequence[int],
    ends: Sequence[int],
    digests: Block,
    topics: list[bytes],
    run_ends: list[int],
    sequences: list[int],
    edges: Sequence[int],
    quote: Quote,
    offset: int = ...,
    times: Sequence[int] = ...,
) -> list[Buffer]: ...
