from array import array
from collections.abc import Sequence

from polycast.log.files.bursts import ContiguousRows, Texts
from polycast.log.files.columns import Buffers, SourcedBurst

def gather(pieces: Sequence[SourcedBurst]) -> list[Buffers]: ...
def stretches(
    offsets: memoryview, topics: Texts, sequences: memoryview, formats: Texts
) -> list[ContiguousRows]: ...
def spans(edges: memoryview) -> tuple[array[int], array[int]]: ...
