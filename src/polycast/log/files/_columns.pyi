from array import array
from collections.abc import Sequence

from polycast.log.files.bursts import ContiguousRows, Texts
from polycast.log.files.columns import PackedColumns, PackedMessage, PlainBuffers, SourcedBurst
from polycast.log.files.heads import OpenHead
from polycast.model import Burst

class Packer:
    def pack(self, pieces: Sequence[SourcedBurst]) -> PackedColumns: ...
    def pack_message(self, pieces: Sequence[SourcedBurst], head: OpenHead, position: int) -> PackedMessage: ...

def payloads(burst: Burst) -> PlainBuffers: ...
def stretches(
    offsets: memoryview, topics: Texts, sequences: memoryview, formats: Texts
) -> list[ContiguousRows]: ...
def spans(edges: memoryview) -> tuple[array[int], array[int]]: ...
