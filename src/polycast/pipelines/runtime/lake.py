"""The lake: a folder of Parquet files with each row exactly once.

    lake/date=2026-11-16/hour=07/00000000000000000000-00000000000000999999-3f9a1c20.parquet
    lake/_staging/QUERY/BATCH/NAME.part         staged files
    lake/_record.json                           the last commit

A file name has the first and the last offset and a unique suffix. Workers write staged files, which Parquet
readers ignore, and fsync them. A commit then replaces the record atomically: it lists the staged files to rename,
the files to remove, and the offset up to which the lake is complete. Renames follow. Opening the lake applies the
record again, so after a crash at any moment

- before the record is replaced, nothing has changed, and staged files are removed;
- after that, the commit is complete once the lake is opened again.

Rows below the record's offset are never added again: a repeated batch or a new checkpoint adds no duplicates.

Renames are not atomic as a group. A reader that lists the folder during a commit sees some of its files. A reader
that lists it during a merge may see the merged file and some of its inputs, and so duplicate rows, or fail to open
a removed file; listing again resolves it. No committed row is ever missing.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from polycast.errors import StartError, UsageError
from polycast.log.files.disk import DISK
from polycast.log.files.folder import make_folder

RECORD = "_record.json"
STAGING = "_staging"
SUFFIX = ".parquet"
STAGED = ".part"
HOURS = "date=*/hour=*"
DIGITS = 20


class Record(msgspec.Struct, frozen=True, kw_only=True):
    log: str = ""
    """The seed that identifies the log the rows come from."""
    query: str = ""
    batch: int = -1
    next: int = 0
    """The lake is complete before this offset."""
    added: list[tuple[str, str]] = []
    """Renames: staged path and target path, relative to the lake."""
    removed: list[str] = []


class StagedFile(NamedTuple):
    staged: str
    hour: str
    """The folder: date=2026-11-16/hour=07"""
    first: int
    last: int
    rows: int
    size: int

    @property
    def target(self) -> str:
        unique = Path(self.staged).stem[:8]
        return f"{self.hour}/{self.first:0{DIGITS}}-{self.last:0{DIGITS}}-{unique}{SUFFIX}"


class LakeFile(NamedTuple):
    name: str
    """The path relative to the lake."""
    first: int
    last: int
    size: int


class Lake:
    """The runner's lock guarantees a single writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = Record()

    def open(self, log: str = "") -> None:
        """Applies the last commit and removes staged files of unfinished ones."""
        make_folder(self.folder, DISK)
        self.record = self._read()
        if log and self.record.log and log != self.record.log:
            hint = "move the lake away, or use another data folder: --data DIR"
            raise UsageError(f"{self.folder} belongs to another log", hint)
        self._apply_record()
        self.remove_staged("")
        self.record = msgspec.structs.replace(self.record, log=log or self.record.log)

    def has(self, query: str, batch: int) -> bool:
        return (self.record.query, self.record.batch) == (query, batch)

    def commit(self, query: str, batch: int, files: Sequence[StagedFile], end: int) -> None:
        """Adds these files. The lake is then complete up to the offset `end`."""
        if end > self.record.next:
            self._write_record(files, [], msgspec.structs.replace(self.record, query=query, batch=batch, next=end))
        self.remove_staged(f"{query}/{batch}")

    def merge(self, merged: StagedFile, files: Iterable[LakeFile]) -> None:
        """Replaces several files by one with the same rows."""
        self._write_record([merged], [file.name for file in files], self.record)

    def remove_staged(self, subfolder: str) -> None:
        """Removes staged files of failed attempts."""
        shutil.rmtree(self.folder / STAGING / subfolder, ignore_errors=True)

    def hours(self) -> list[str]:
        """Sorted by time."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.glob(HOURS))

    def files(self, hour: str) -> list[LakeFile]:
        """Sorted by offset."""
        found = []
        for path in (self.folder / hour).glob(f"*{SUFFIX}"):
            found.append(LakeFile(f"{hour}/{path.name}", *offsets_of(path), path.stat().st_size))
        return sorted(found, key=lambda file: file.first)

    def _read(self) -> Record:
        try:
            return msgspec.json.decode((self.folder / RECORD).read_bytes(), type=Record)
        except FileNotFoundError:
            return Record()
        except msgspec.DecodeError as error:
            raise StartError(f"{self.folder / RECORD} cannot be read: {error}", "move the lake away") from error

    def _write_record(self, added: Sequence[StagedFile], removed: Sequence[str], record: Record) -> None:
        """The previous record has been applied, so it can be replaced."""
        names = [(file.staged, file.target) for file in added]
        for folder in {(self.folder / staged).parent for staged, _ in names}:
            DISK.sync_folder(folder)
        record = msgspec.structs.replace(record, added=names, removed=list(removed))
        DISK.replace(self.folder / RECORD, msgspec.json.encode(record))
        self.record = record
        self._apply_record()

    def _apply_record(self) -> None:
        """Idempotent. Adds files before it removes others, so that no row is ever missing."""
        changed = set()
        for staged, target in self.record.added:
            make_folder((self.folder / target).parent, DISK)
            with contextlib.suppress(FileNotFoundError):  # already renamed
                (self.folder / staged).rename(self.folder / target)
                changed.add((self.folder / target).parent)
        for name in self.record.removed:
            (self.folder / name).unlink(missing_ok=True)
        for folder in changed:
            DISK.sync_folder(folder)


def offsets_of(path: Path) -> tuple[int, int]:
    """The first and the last offset of a file, from its name."""
    first, last, *_ = path.stem.split("-")
    return int(first), int(last)
