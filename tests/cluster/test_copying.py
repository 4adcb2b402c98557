"""What a node reads from its log for another one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from polycast.cluster.copying import FileRange, list_files, read_range

SEGMENT = "00000000000000000000.arrows"


def test_ranges_of_files(tmp_path: Path) -> None:
    (tmp_path / SEGMENT).write_bytes(b"0123456789")
    (tmp_path / "tokens.json").write_bytes(b"secret")
    assert list_files(tmp_path) == [FileRange(SEGMENT, 0, 10)]
    assert read_range(tmp_path, FileRange(SEGMENT, 2, 3)) == b"234"
    for name in ("tokens.json", f"../{SEGMENT}", ""):
        with pytest.raises(FileNotFoundError):
            read_range(tmp_path, FileRange(name, 0, 3))


@pytest.mark.parametrize("wrong", [{"size": -1}, {"at": -1}])
def test_a_negative_range_is_refused(wrong: dict[str, int]) -> None:
    data = msgspec.json.encode({"name": SEGMENT} | wrong)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(data, type=FileRange)
