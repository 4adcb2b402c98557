"""A sealed segment: a Parquet file that anybody can read, and that proves itself to those who know how.

Its key-value metadata has two keys of ours. `polycast` is a JSON object: what the segment is about, and for each
row group its offsets, its times and a digest of each column. `polycast.digest` is the xxh3_128 of that text, in
hex digits. The digest of a column is the xxh3_64 of its values as they lie in memory, little-endian:

    offset, sequence, time            the int64 of each row
    topic, dialect, format, source    the int32 length of each row's value in bytes, then the bytes of all values
    payload                           the same

and `content`, the digest of the whole, is the xxh3_128 of all these digests as text, one after the other: by row
group, within it by column. Parquet's own checksums cover pages only; statistics, encodings and the schema lie
outside of them. So rows count only if the digests are right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from polycast.errors import LogDamageError
from polycast.log.files.format import KEY, SCHEMA, VERSION, BatchEntry, Gap

DIGEST_KEY = b"polycast.digest"


class RowGroup(msgspec.Struct, frozen=True):
    first: int
    next: int
    count: int
    first_time: int
    """In microseconds since the epoch, as all times here."""
    last_time: int
    columns: list[str]
    """The digest of each, in the order of the schema."""
    sequences: tuple[int, int] | None = None
    """The least and the greatest. None, as for topics, where the file is older than this."""
    topics: list[str] | None = None
    """All of them, if these are not many, else the least and the greatest."""
    all_topics: bool = False


class SegmentMetadata(msgspec.Struct, frozen=True):
    version: int
    seed: str
    first: int
    next: int
    """The offset after the last row."""
    count: int
    previous: str
    """The checksum of the group before the first one that is in here."""
    checksum: str
    """That of the last one."""
    gaps: list[Gap]
    batches: list[BatchEntry]
    first_time: int
    last_time: int
    content: str
    row_groups: list[RowGroup]


METADATA = msgspec.json.Decoder(SegmentMetadata)

# -- digests ---------------------------------------------------------------------------------------------


def digest_of(column: pa.ChunkedArray) -> str:
    if column.null_count:
        raise LogDamageError(f"{column.null_count:,} rows have no value")
    digest = xxhash.xxh3_64()
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        for chunk in column.chunks:
            digest.update(_values(pc.binary_length(chunk), 4))
        for chunk in column.chunks:
            digest.update(_texts(chunk))
    else:
        for chunk in column.chunks:
            digest.update(_values(chunk, 8))
    return digest.hexdigest()


def _values(array: pa.Array, width: int) -> memoryview:
    return memoryview(array.buffers()[1] or b"")[array.offset * width : (array.offset + len(array)) * width]


def _texts(array: pa.Array) -> memoryview:
    _, edges, data = array.buffers()
    between = memoryview(edges or bytes(4)).cast("B").cast("i")
    return memoryview(data or b"")[between[array.offset] : between[array.offset + len(array)]]


def content_of(row_groups: Sequence[RowGroup]) -> str:
    digests = "".join(digest for row_group in row_groups for digest in row_group.columns)
    return xxhash.xxh3_128_hexdigest(digests.encode())


def to_key_values(metadata: SegmentMetadata) -> dict[bytes, bytes]:
    text = msgspec.json.encode(metadata)
    return {KEY: text, DIGEST_KEY: xxhash.xxh3_128_hexdigest(text).encode()}


def _parse_metadata(key_values: dict[bytes, bytes]) -> SegmentMetadata:
    try:
        text = key_values[KEY]
        right = xxhash.xxh3_128_hexdigest(text).encode() == key_values[DIGEST_KEY]
    except KeyError as error:
        raise LogDamageError("it is not marked as a segment") from error
    if not right:
        raise LogDamageError("what it says about itself does not fit its digest")
    version = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("version", b"0")
    if int(bytes(version)) > VERSION:
        raise LogDamageError(f"it is of version {int(bytes(version))}, and this program reads up to {VERSION}")
    return METADATA.decode(text)


# -- reading ---------------------------------------------------------------------------------------------


class SealedReader:
    """Reads row groups. Damage raises LogDamageError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = pa.OSFile(str(path))
        with self._damage("the end of the file"), contextlib.ExitStack() as opened:
            opened.enter_context(file)
            self._file = pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False)
            if not self._file.schema_arrow.equals(SCHEMA):
                raise LogDamageError("its schema is not that of a log")
            self.metadata = _parse_metadata(self._file.metadata.metadata or {})
            if self._file.num_row_groups != len(self.metadata.row_groups):
                raise LogDamageError("row groups are missing")
            opened.pop_all()

    def read(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of one row group, in the columns of that name; all without."""
        wanted = list(columns or SCHEMA.names)
        row_group = self.metadata.row_groups[number]
        with self._damage(f"row group {number}"):
            table = self._file.read_row_group(number, wanted, use_threads=False)
            for name in wanted:
                if digest_of(table[name]) != row_group.columns[SCHEMA.get_field_index(name)]:
                    raise LogDamageError(f"the digest of the column {name} is wrong")
            [batch] = table.select(wanted).replace_schema_metadata().combine_chunks().to_batches()
        return batch

    def size_of(self, number: int) -> int:
        """In bytes, before compression."""
        return int(self._file.metadata.row_group(number).total_byte_size)

    @contextlib.contextmanager
    def _damage(self, place: str) -> Iterator[None]:
        """Whatever goes wrong here is the file's fault."""
        try:
            yield
        except (LogDamageError, pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            words = " ".join(str(error).split())  # some of Arrow's errors have several lines
            raise LogDamageError(f"{self.path}, {place}: {words}") from error

    def close(self) -> None:
        self._file.close(force=True)

    def __enter__(self) -> SealedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
