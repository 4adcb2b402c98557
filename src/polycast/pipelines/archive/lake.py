"""The lake: files that every reader of Parquet reads, and what makes each row be in them once.

    lake/date=2026-11-16/hour=07/00000000000000000000-00000000000000999999-3f9a1c20.parquet
    lake/_staging/QUERY/BATCH/NAME.part         being written, or left over
    lake/_record.json                           what was decided last

A file is named by its first and its last offset; the rest of the name makes it unlike any other. Files are
staged under names that nobody takes for Parquet, and synced. Then the record is replaced, in one step: it says
which staged files get which names, which files go, and up to which offset the lake is complete. Only then names
change. Whoever finds a record carries it out to its end, so after a stop at any moment

- before the record is replaced, nothing has happened, and what is staged is swept away;
- after it, everything has happened as soon as the lake is opened again.

Rows below the record's offset are never taken again. A batch that comes a second time, or a checkpoint that
begins anew, adds nothing that is there.

Names change one after the other. Who lists a folder while a batch is added sees some files of it and not yet
others. Who lists it while small files are merged can see the merged file and some of those that it replaces, and
so rows twice, or be told that a file is gone which it saw a moment before; to list it again helps. No row is
ever missing that was there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from polycast.errors import StartError, UsageError
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import make_folder

RECORD = "_record.json"
STAGING = "_staging"
SUFFIX = ".parquet"
STAGED = ".part"
HOURS = "date=*/hour=*"
DIGITS = 20


class Record(msgspec.Struct, frozen=True, kw_only=True):
    log: str = ""
    """The seed of the log that the rows are from, where it has one."""
    query: str = ""
    batch: int = -1
    next: int = 0
    """No row before this offset is missing, and none is taken again."""
    added: list[tuple[str, str]] = []
    """From which name to which, both from the lake's folder on."""
    removed: list[str] = []


class StagedFile(NamedTuple):
    """What a worker tells of a file that it wrote."""

    staged: str
    hour: str
    """As the folder is called: date=2026-11-16/hour=07"""
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
    """From the lake's folder on."""
    first: int
    last: int
    size: int


class Lake:
    """One process at a time writes to it: the runner sees to that."""

    def __init__(self, folder: Path, disk: Disk = DISK) -> None:
        self.folder = folder
        self._disk = disk
        self.record = Record()

    def open(self, log: str = "") -> None:
        """Carries out what was decided, and sweeps away what was not."""
        make_folder(self.folder, self._disk)
        self.record = self._read()
        if log and self.record.log and log != self.record.log:
            hint = "move the lake away, or take another data folder with --data DIR"
            raise UsageError(f"{self.folder} has the messages of another log", hint)
        self._apply_record()
        self.remove_staged("")
        self.record = msgspec.structs.replace(self.record, log=log or self.record.log)

    def has(self, query: str, batch: int) -> bool:
        return (self.record.query, self.record.batch) == (query, batch)

    def commit(self, query: str, batch: int, files: Sequence[StagedFile], end: int) -> None:
        """What these files hold is in the lake from here on, and it is complete up to the offset `end`."""
        if end > self.record.next:
            self._write_record(files, [], msgspec.structs.replace(self.record, query=query, batch=batch, next=end))
        self.remove_staged(f"{query}/{batch}")

    def merge(self, merged: StagedFile, files: Iterable[LakeFile]) -> None:
        """One file in place of several that have the same rows."""
        self._write_record([merged], [file.name for file in files], self.record)

    def remove_staged(self, subfolder: str) -> None:
        """Removes what is staged there: attempts that failed."""
        shutil.rmtree(self.folder / STAGING / subfolder, ignore_errors=True)

    def hours(self) -> list[str]:
        """By time."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.glob(HOURS))

    def files(self, hour: str) -> list[LakeFile]:
        """By offset."""
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
        """The last record is carried out by now, so that a new one may take its place."""
        names = [(file.staged, file.target) for file in added]
        for folder in {(self.folder / staged).parent for staged, _ in names}:
            self._disk.sync_folder(folder)
        record = msgspec.structs.replace(record, added=names, removed=list(removed))
        self._disk.replace(self.folder / RECORD, msgspec.json.encode(record))
        self.record = record
        self._apply_record()

    def _apply_record(self) -> None:
        """As often as one likes. First what comes, then what goes: so nothing is ever missing."""
        changed = set()
        for staged, target in self.record.added:
            make_folder((self.folder / target).parent, self._disk)
            with contextlib.suppress(FileNotFoundError):  # it has its name already
                (self.folder / staged).rename(self.folder / target)
                changed.add((self.folder / target).parent)
        for name in self.record.removed:
            (self.folder / name).unlink(missing_ok=True)
        for folder in changed:
            self._disk.sync_folder(folder)


def offsets_of(path: Path) -> tuple[int, int]:
    """The first and the last that a file of the lake has, by its name."""
    first, last, *_ = path.stem.split("-")
    return int(first), int(last)
