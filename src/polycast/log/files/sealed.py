"""A sealed segment: a Parquet file that any program can read, with digests of all rows.

Its key-value metadata has two keys of Polycast. `polycast` is a JSON object: offsets, checksums, gaps and batches
of the segment, and for each row group its offsets, its times and a digest of each column. `polycast.digest` is the
xxh3_128 of that text, in hex digits. The digest of a column is the xxh3_64 of its values in memory, little-endian:

    offset, sequence, time            the int64 of each row
    topic, dialect, format, source    the int32 length of each value in bytes, then the bytes of all values
    payload                           the same

`content` is the xxh3_128 of all these digests as text: by row group, within it by column. The checksums of Parquet
cover pages only, not statistics, encodings and the schema. Rows are therefore valid only if the digests match.
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

from polycast.errors import LogDamageError, LogVersionError
from polycast.log.files.extract import ExtractFile, Span, extract
from polycast.log.files.format import KEY, SCHEMA, VERSION, BatchEntry, Gap, StreamPosition

DIGEST_KEY = b"polycast.digest"
TRAILER_BYTES = 8
"""Behind the metadata of Parquet: its length, and the magic number."""


class RowGroup(msgspec.Struct, frozen=True):
    first: int
    next: int
    count: int
    first_time: int
    """Microseconds since the epoch, like all times here."""
    last_time: int
    columns: list[str]
    """The digest of each, in schema order."""
    sequences: tuple[int, int] | None = None
    """The least and the greatest. None, as for topics, in older files."""
    topics: list[str] | None = None
    """All topics if there are few, otherwise the least and the greatest."""
    all_topics: bool = False


class SegmentMetadata(msgspec.Struct, frozen=True):
    version: int
    seed: str
    first: int
    next: int
    """The offset after the last row."""
    count: int
    previous: str
    """The checksum of the group before the first one of this segment."""
    checksum: str
    """The checksum of the last group."""
    gaps: list[Gap]
    batches: list[BatchEntry]
    first_time: int
    last_time: int
    content: str
    row_groups: list[RowGroup]
    position: StreamPosition | None = None


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
        raise LogDamageError("it has no metadata of a segment") from error
    if not right:
        raise LogDamageError("its metadata does not match its digest")
    version = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("version", b"0")
    if int(bytes(version)) > VERSION:
        raise LogVersionError("the file", int(bytes(version)), VERSION)
    return METADATA.decode(text)


# -- reading ---------------------------------------------------------------------------------------------


class SealedReader:
    """Reads row groups. Raises LogDamageError."""

    def __init__(self, path: Path, extracted: pa.RecordBatch | None = None) -> None:
        """`extracted`: what `extract` returned on another machine; then no file is opened."""
        self.path = path
        self._source = pa.OSFile(str(path)) if extracted is None else pa.PythonFile(ExtractFile(extracted), "r")
        with self._damage("the end of the file"), contextlib.ExitStack() as opened:
            opened.enter_context(self._source)
            end = (
                None if extracted is None else pq.read_metadata(pa.BufferReader(extracted["data"][-1].as_buffer()))
            )
            self._file = pq.ParquetFile(
                self._source, metadata=end, page_checksum_verification=True, pre_buffer=False
            )
            if not self._file.schema_arrow.equals(SCHEMA):
                raise LogDamageError("its schema is not the schema of a log")
            self.metadata = _parse_metadata(self._file.metadata.metadata or {})
            if self._file.num_row_groups != len(self.metadata.row_groups):
                raise LogDamageError("row groups are missing")
            opened.pop_all()

    def read(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of one row group, with the given columns or all."""
        wanted = list(columns or SCHEMA.names)
        row_group = self.metadata.row_groups[number]
        with self._damage(f"row group {number}"):
            table = self._file.read_row_group(number, wanted, use_threads=False)
            for name in wanted:
                if digest_of(table[name]) != row_group.columns[SCHEMA.get_field_index(name)]:
                    raise LogDamageError(f"the digest of the column {name} is wrong")
            [batch] = table.select(wanted).replace_schema_metadata().combine_chunks().to_batches()
        return batch

    def extract(self, numbers: Sequence[int], columns: Sequence[str]) -> pa.RecordBatch:
        """The bytes of these columns in these row groups, and the metadata. Neither decoded nor verified: a reader
        of the extract does both."""
        spans = [span for number in numbers for span in self._spans(number, columns)]
        with self._damage("row groups"):
            end = self._source.size()
            spans.append((end - self._file.metadata.serialized_size - TRAILER_BYTES, end))
            return extract(self._source, spans)

    def extracted_bytes(self, number: int, columns: Sequence[str]) -> int:
        """The size of one row group in an extract."""
        return sum(end - begin for begin, end in self._spans(number, columns))

    def _spans(self, number: int, columns: Sequence[str]) -> Iterator[Span]:
        row_group = self._file.metadata.row_group(number)
        for name in columns:
            chunk = row_group.column(SCHEMA.get_field_index(name))
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            yield begin, begin + chunk.total_compressed_size

    def size_of(self, number: int) -> int:
        """Bytes before compression."""
        return int(self._file.metadata.row_group(number).total_byte_size)

    @contextlib.contextmanager
    def _damage(self, part: str) -> Iterator[None]:
        """Maps every error to LogDamageError."""
        try:
            yield
        except (LogDamageError, pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            if isinstance(error, LogVersionError):
                raise LogVersionError(self.path, error.version, error.known) from error
            words = " ".join(str(error).split())  # some errors of Arrow have several lines
            raise LogDamageError(f"{self.path}, {part}: {words}") from error

    def close(self) -> None:
        self._file.close(force=True)

    def __enter__(self) -> SealedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
