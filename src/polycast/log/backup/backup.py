"""Backup of a log, with its broker running or stopped.

A backup is the log up to an offset that was durable when the backup began. The end of the segment being written is
fixed first, and the files are copied from the newest to the oldest: sealing replaces a file by one with the same
messages, and retention removes the oldest, so that the copy has no hole. Files are read back before the backup
counts. A stopped log is locked meanwhile.

A log that was not stopped cleanly continues, after a restore, behind the offsets that were reserved at the time
of the backup: the original may have used them since.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from polycast.errors import BackupError, StartError
from polycast.log.backup.manifest import BackupFile, Manifest
from polycast.log.backup.stores import PARTIAL, TAR, BackupWriter, Step, copy, open_backup, open_writer
from polycast.log.files.disk import DISK, Disk
from polycast.log.files.folder import BATCHES, HOT, SEALED, TOPICS, Segment, first_offset_of, segments
from polycast.log.files.hot import HotReader
from polycast.log.files.quarantine import QUARANTINE
from polycast.log.files.sealed import SealedReader
from polycast.log.files.state import NAME as STATE
from polycast.log.files.state import FolderLock, LogState, encode_state, log_id, read_state

ARCHIVES = (".gz", ".tgz", ".zip", ".zst", ".xz", ".bz2", ".7z")
"""Kinds of files that a backup cannot be: a folder of such a name would be a surprise."""
ATTEMPTS = 3
"""A listing that runs while a segment is sealed may miss it under both names."""


class Phase(NamedTuple):
    """For a progress bar: what is done, and how many bytes it has."""

    name: str
    total: int


Report = Callable[[Phase], Step]


def backup(
    folder: Path, target: Path, report: Report = lambda phase: lambda done: None, disk: Disk = DISK
) -> Manifest:
    """Raises BackupError, and LogDamageError for a log whose state cannot be read. Then no backup is left."""
    check_target(folder, target)
    with ExitStack() as opened:
        with suppress(StartError, PermissionError):  # a broker has the lock; or this account cannot write
            opened.callback(FolderLock(folder).release)
        try:
            writer = open_writer(target, disk)
        except OSError as error:
            raise BackupError(f"cannot write {target}: {error.strerror}") from error
        try:
            found = _write(folder, writer, report)
            _read_back(target, found, report)
        except BaseException as error:
            writer.discard()
            if isinstance(error, OSError | EOFError):
                raise BackupError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from error
            raise
    return found


def check_target(folder: Path, target: Path) -> None:
    """Raises BackupError if a backup cannot be written there."""
    data = folder.parent.resolve()
    if target.is_symlink():
        raise BackupError(f"{target} is a symbolic link", "name the folder or the file itself")
    if data == target.resolve() or data in target.resolve().parents:
        raise BackupError(
            f"{target} is inside the data folder {data}", "name a place outside of it, on another disk"
        )
    if target.suffix.lower() in ARCHIVES:
        hint = f"name a file that ends with {TAR}, and compress it afterwards; segments are compressed already"
        raise BackupError(f"{target}: a backup is a folder or a {TAR} file, not {target.suffix}", hint)
    if target.suffix == TAR and target.exists():
        raise BackupError(f"{target} exists", "name another file, or remove it")
    if target.suffix != TAR and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(
            f"{target} is not an empty folder", f"name another folder, or a file that ends with {TAR}"
        )
    partial = target.with_name(target.name + PARTIAL)
    if target.suffix == TAR and partial.exists():
        raise BackupError(f"{partial} is there, from another backup", "remove it, unless that backup still runs")
    if not target.resolve().parent.is_dir():
        raise BackupError(f"{target.parent} is not a folder", "create it first")


# -- files -----------------------------------------------------------------------------------------------


class BackupSource(NamedTuple):
    """A file of the log, and how many of its bytes belong to the backup."""

    path: Path
    size: int
    file: BinaryIO
    next: int = 0
    """The offset behind a segment."""


def _write(folder: Path, writer: BackupWriter, report: Report) -> Manifest:
    state = _read_state(folder)
    found, last = _list(folder)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    step = report(Phase("copying", sum(_size(segment.path) for segment in found)))
    files: list[BackupFile] = []
    first = after = last.next if last else state.next
    for segment in reversed(found):
        source = last if last and segment.first == first_offset_of(last.path) else _open(segment)
        if source is None:
            break  # retention has removed it, and all older ones
        with source.file:
            files.append(writer.add(source.path.name, source.size, source.file, step))
        first = segment.first
    firsts = {first_offset_of(Path(file.name)) for file in files}
    for path in _others(folder, {*firsts, after, state.next}):
        if opened := _open_plain(path):
            with opened.file:
                files.append(writer.add(str(path.relative_to(folder)), opened.size, opened.file, step))
    text = encode_state(_to_state(_read_state(folder), created))
    files.append(writer.add(STATE, len(text), BytesIO(text), step))
    made = Manifest(log=log_id(state.seed), created=created, first=first, next=after, files=files)
    writer.finish(made)
    return made


def _read_state(folder: Path) -> LogState:
    state = read_state(folder)
    if state is None:
        hint = "start the broker once: it restores the state from the segments"
        raise BackupError(f"{folder / STATE} is missing or cannot be read", hint)
    return state


def _to_state(state: LogState, created: str) -> LogState:
    return state if state.clean else replace(state, restored=created)


def _list(folder: Path) -> tuple[list[Segment], BackupSource | None]:
    """All segments, and the last one, opened, with its end fixed."""
    for _ in range(ATTEMPTS):
        found = segments(folder)
        if not found:
            return [], None
        if last := _open(found[-1]):
            return found, last
    raise BackupError(f"{folder}: {found[-1].path.name} disappears again and again")


def _open(segment: Segment) -> BackupSource | None:
    """The segment as it is now, hot or sealed; None if it is gone."""
    for path in (segment.path, segment.path.with_suffix(SEALED)):
        with suppress(FileNotFoundError):
            if path.suffix == HOT:
                return _open_hot(path)
            with SealedReader(path) as reader:
                after = reader.metadata.next
            file = path.open("rb")
            return BackupSource(path, os.fstat(file.fileno()).st_size, file, after)
    return None


def _open_hot(path: Path) -> BackupSource:
    """Up to the last complete group, which is durable then."""
    reader = HotReader(path)
    after = first_offset_of(path) or 0
    try:
        for _, header in reader.headers():
            after = header.next
        end = reader.position
    finally:
        reader.close()
    file = path.open("rb")
    os.fdatasync(file.fileno())
    return BackupSource(path, end, file, after)


def _open_plain(path: Path) -> BackupSource | None:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    return BackupSource(path, os.fstat(file.fileno()).st_size, file)


def _others(folder: Path, offsets: set[int | None]) -> Iterator[Path]:
    """Snapshots at these offsets, and the quarantine."""
    for path in sorted(folder.glob(f"*{TOPICS}")):
        if first_offset_of(path) in offsets and _size(path.with_suffix(BATCHES)):
            yield from (path.with_suffix(BATCHES), path)
    yield from sorted(path for path in (folder / QUARANTINE).glob("*") if path.is_file())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# -- reading back ----------------------------------------------------------------------------------------


def _read_back(target: Path, written: Manifest, report: Report) -> None:
    step = report(Phase("reading back", written.total))
    with open_backup(target) as (found, open_file):
        if found != written:
            raise BackupError(f"{target}: the manifest differs from what was written", "the disk is not reliable")
        check_files(target, found, open_file, step)


def check_files(source: Path, found: Manifest, open_file: Callable[[BackupFile], BinaryIO], step: Step) -> None:
    for listed in found.files:
        with open_file(listed) as file:
            check_digest(source, listed, copy(file, lambda data: None, listed.bytes, step))


def check_digest(source: Path, listed: BackupFile, digest: str) -> None:
    if digest != listed.sha256:
        text = f"{source}: {listed.name} is damaged: its sha256 is {digest}, and {listed.sha256} in the manifest"
        raise BackupError(text, "take another backup, or restore an older one")


@contextmanager
def opened_backup(source: Path) -> Iterator[tuple[Manifest, Callable[[BackupFile], BinaryIO]]]:
    """`open_backup`, with errors of the disk as BackupError."""
    try:
        with open_backup(source) as found:
            yield found
    except OSError as error:
        raise BackupError(f"cannot read {source}: {error.strerror or error}") from error
