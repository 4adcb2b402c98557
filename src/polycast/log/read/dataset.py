"""The whole log as a pyarrow dataset: sealed segments by name, hot ones in memory."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from polycast.errors import UsageError
from polycast.log.files.folder import SEALED, Segment, log_folder, segments
from polycast.log.files.format import SCHEMA
from polycast.log.files.hot import HotReader
from polycast.log.files.quarantine import read_lost
from polycast.log.files.state import NAME, read_state
from polycast.log.read.gaps import count_offsets
from polycast.log.read.seek import first_offset

log = logging.getLogger("polycast.log")


def open_dataset(path: str | Path) -> ds.Dataset:
    """As `polycast.log.dataset` describes."""
    folder = _find(Path(path))
    read_state(folder)  # raises LogVersionError
    _warn_of_losses(folder)
    sealed: list[str] = []
    hot: list[pa.Table] = []
    for segment in _list(folder):
        table = None if segment.sealed else _read_hot(segment.path)
        if table is not None:
            hot.append(table)
        elif segment.path.with_suffix(SEALED).exists():  # otherwise retention has removed it
            sealed.append(str(segment.path.with_suffix(SEALED)))
    parts = [ds.dataset(sealed, schema=SCHEMA, format="parquet")] if sealed else []
    return ds.dataset([*parts, ds.dataset(pa.concat_tables([SCHEMA.empty_table(), *hot]))])


def _warn_of_losses(folder: Path) -> None:
    """Those that retention has not removed yet."""
    first = first_offset(folder) or 0
    if lost := count_offsets(gap for gap in read_lost(folder) if gap.first >= first):
        log.warning(
            "%s: %s messages of the log are lost; polycast log info lists their offsets", folder, f"{lost:,}"
        )


def _find(path: Path) -> Path:
    for folder in (path, log_folder(path)):
        if folder.is_dir() and ((folder / NAME).exists() or segments(folder)):
            return folder
    raise UsageError(f"there is no log in {path}", "polycast serve --data DIR writes its log to DIR/log")


def _list(folder: Path) -> list[Segment]:
    """A listing that runs during a rename may miss the file under both names: of two, each segment is in one."""
    found = {segment.first: segment for segment in segments(folder)}
    found |= {segment.first: segment for segment in segments(folder)}
    return [found[first] for first in sorted(found)]


def _read_hot(path: Path) -> pa.Table | None:
    """The verified rows; None if the segment was sealed or removed meanwhile."""
    try:
        reader = HotReader(path)
    except FileNotFoundError:
        return None
    try:
        batches = [group.batch.replace_schema_metadata() for group in reader.groups()]
    finally:
        reader.close()
    return pa.Table.from_batches(batches, SCHEMA)
