"""Extracts of sealed segments: the rows that were asked for, verified, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from log.log_builder import LogBuilder, every_byte
from polycast.errors import LogDamageError
from polycast.log.files.extract import EXTRACT, ExtractFile, extract, join
from polycast.log.files.format import SCHEMA
from polycast.log.files.sealed import SealedReader
from polycast.log.upkeep import sealing

ELSEWHERE = Path("elsewhere")


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SealedReader]:
    """A segment of three row groups."""
    monkeypatch.setattr(sealing, "ROW_GROUP_ROWS", 10)
    target = sealing.seal(LogBuilder(tmp_path).segment(10, 10, 10))
    assert target
    with SealedReader(target) as reader:
        yield reader


@pytest.mark.parametrize("columns", [list(SCHEMA.names), ["offset"], ["payload", "topic"]])
@pytest.mark.parametrize("numbers", [[0], [1, 2], [0, 2]])
def test_an_extract_has_the_rows_of_the_file(sealed: SealedReader, numbers: list[int], columns: list[str]) -> None:
    extracted = sealed.extract(numbers, columns)
    assert extracted.schema == EXTRACT
    with SealedReader(ELSEWHERE, extracted) as reader:
        assert reader.metadata == sealed.metadata
        for number in numbers:
            assert reader.read(number, columns).equals(sealed.read(number, columns))


def test_what_is_not_in_an_extract(sealed: SealedReader) -> None:
    with SealedReader(ELSEWHERE, sealed.extract([1], ["offset", "topic"])) as reader:
        with pytest.raises(LogDamageError, match=r"elsewhere, row group 0: .* not in the extract"):
            reader.read(0, ["offset"])
        with pytest.raises(LogDamageError, match=r"elsewhere, row group 1: .* not in the extract"):
            reader.read(1, ["payload"])


def test_the_size_of_an_extract(sealed: SealedReader) -> None:
    first, second = (sealed.extracted_bytes(number, SCHEMA.names) for number in (0, 1))
    one, two = (sealed.extract(numbers, SCHEMA.names)["data"].to_pylist() for numbers in ([0], [0, 1]))
    assert [len(piece) for piece in one[:-1]] == [first]
    assert [len(piece) for piece in two[:-1]] == [first + second]  # adjacent bytes are one piece
    assert one[-1] == two[-1] == sealed.path.read_bytes()[-len(one[-1]) :]


def test_every_damaged_byte_is_found(sealed: SealedReader) -> None:
    extracted = sealed.extract([1], ["offset", "payload"])
    expected = sealed.read(1, ["offset", "payload"])
    positions, pieces = extracted["position"], extracted["data"].to_pylist()
    for number, piece in enumerate(pieces):
        for at in every_byte(0, len(piece)):
            damaged = bytearray(piece)
            damaged[at] ^= 1
            changed = [*pieces[:number], bytes(damaged), *pieces[number + 1 :]]
            batch = pa.RecordBatch.from_arrays([positions, pa.array(changed, pa.binary())], schema=EXTRACT)
            try:
                with SealedReader(ELSEWHERE, batch) as reader:
                    assert reader.read(1, ["offset", "payload"]).equals(expected)
            except LogDamageError:
                continue


def test_spans_are_joined() -> None:
    assert join([(10, 20), (0, 5), (5, 7), (20, 21)]) == [(0, 7), (10, 21)]


def test_an_extract_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    with pa.OSFile(str(path)) as source:
        batch = extract(source, [(10, 20), (20, 30), (90, 100)])
        with pytest.raises(OSError, match="ends before byte 101"):
            extract(source, [(90, 101)])
    file = ExtractFile(batch)
    assert file.seek(0, 2) == 100 and len(file.read(5)) == 0
    file.seek(15)
    assert bytes(file.read(10)) == bytes(range(15, 25)) and file.tell() == 25
    file.seek(-3, 2)
    assert bytes(file.read()) == bytes((97, 98, 99))
    for begin, size in ((0, 1), (9, 2), (29, 2), (30, 1), (89, 2)):
        file.seek(begin)
        with pytest.raises(OSError, match="not in the extract"):
            file.read(size)
