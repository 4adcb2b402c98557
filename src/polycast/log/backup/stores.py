"""Where a backup lies: a folder, or a tar file. Both hold plain files and nothing else.

A backup is invisible until it is whole: a tar file gets its name at the end, a folder its manifest.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from polycast.errors import BackupError
from polycast.log.backup import manifest
from polycast.log.backup.manifest import BackupFile, Manifest
from polycast.log.files.disk import Disk

TAR = ".tar"
PARTIAL = ".partial"
CHUNK_BYTES = 1024 * 1024

Step = Callable[[int], None]
"""Called with the number of bytes done."""


class BackupWriter(Protocol):
    def add(self, name: str, size: int, source: BinaryIO, step: Step) -> BackupFile: ...

    def finish(self, found: Manifest) -> None: ...

    def discard(self) -> None: ...


def copy(source: BinaryIO, target: Callable[[bytes], object], size: int, step: Step) -> str:
    """Copies so many bytes, and returns their sha256. Raises EOFError if there are fewer."""
    digest, left = hashlib.sha256(), size
    while left:
        data = source.read(min(CHUNK_BYTES, left))
        if not data:
            raise EOFError(f"{left:,} of {size:,} bytes are missing")
        target(data)
        digest.update(data)
        left -= len(data)
        step(len(data))
    return digest.hexdigest()


class FolderWriter:
    def __init__(self, target: Path, disk: Disk) -> None:
        self._target = target
        self._disk = disk
        self._made = not target.exists()
        target.mkdir(exist_ok=True)

    def add(self, name: str, size: int, source: BinaryIO, step: Step) -> BackupFile:
        path = self._target / name
        path.parent.mkdir(exist_ok=True)
        digest = write_file(path, size, source, self._disk, step)
        return BackupFile(name, size, digest)

    def finish(self, found: Manifest) -> None:
        for folder in {(self._target / file.name).parent for file in found.files}:
            self._disk.sync_folder(folder)
        self._disk.replace(self._target / manifest.NAME, manifest.to_json(found))
        self._disk.sync_folder(self._target.parent)

    def discard(self) -> None:
        if self._made:
            shutil.rmtree(self._target, ignore_errors=True)
            return
        for path in self._target.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def write_file(path: Path, size: int, source: BinaryIO, disk: Disk, step: Step) -> str:
    """A new, durable file. Returns its sha256."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        written = 0

        def write(data: bytes) -> None:
            nonlocal written
            disk.write(fd, data, written)
            written += len(data)

        digest = copy(source, write, size, step)
        disk.sync(fd)
        disk.drop_cache(fd, 0, 0)
    finally:
        os.close(fd)
    return digest


class TarWriter:
    def __init__(self, target: Path, disk: Disk) -> None:
        self._target = target
        self._disk = disk
        self._partial = target.with_name(target.name + PARTIAL)
        self._file = self._partial.open("xb")
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115

    def add(self, name: str, size: int, source: BinaryIO, step: Step) -> BackupFile:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = size, int(time.time()), 0o600
        counted = _Counted(source, size, step)
        self._tar.addfile(member, counted)  # type: ignore[arg-type]
        return BackupFile(name, size, counted.digest.hexdigest())

    def finish(self, found: Manifest) -> None:
        text = manifest.to_json(found)
        self.add(manifest.NAME, len(text), io.BytesIO(text), lambda done: None)
        self._tar.close()
        self._file.flush()
        self._disk.sync(self._file.fileno())
        self._disk.drop_cache(self._file.fileno(), 0, 0)
        self._file.close()
        self._disk.rename(self._partial, self._target)

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        self._partial.unlink(missing_ok=True)
        self._target.unlink(missing_ok=True)  # did not exist before


class _Counted:
    """A source for tarfile that computes the digest."""

    def __init__(self, source: BinaryIO, size: int, step: Step) -> None:
        self._source = source
        self._left = size
        self._step = step
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._source.read(min(size, self._left))
        if not data and size and self._left:
            raise EOFError(f"{self._left:,} bytes are missing")
        self._left -= len(data)
        self.digest.update(data)
        self._step(len(data))
        return data


def open_writer(target: Path, disk: Disk) -> BackupWriter:
    return TarWriter(target, disk) if target.suffix == TAR else FolderWriter(target, disk)


# -- reading ---------------------------------------------------------------------------------------------

Opener = Callable[[BackupFile], BinaryIO]


@contextmanager
def open_backup(source: Path) -> Iterator[tuple[Manifest, Opener]]:
    """The manifest, and a function that opens one of its files. Raises BackupError."""
    if source.is_dir():
        yield _read_folder(source)
        return
    try:
        with _reading_headers():
            tar = tarfile.open(source, "r:")  # noqa: SIM115
        with tar:
            yield _read_tar(source, tar)
    except (tarfile.TarError, EOFError) as error:
        hint = "a backup is a folder, or a tar file, that polycast log backup has written"
        raise BackupError(f"{source} is not a whole backup: {error}", hint) from error


def _read_folder(source: Path) -> tuple[Manifest, Opener]:
    def open_file(name: str) -> BinaryIO:
        try:
            fd = os.open(source / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise BackupError(f"{source} is not a whole backup: {name} is missing", INCOMPLETE) from error
        except OSError as error:
            raise BackupError(f"{source / name} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise BackupError(f"{source / name} is not a plain file")
        return open(fd, "rb")  # noqa: PTH123

    def open_listed(file: BackupFile) -> BinaryIO:
        if (source / file.name).parent.is_symlink():
            raise BackupError(f"{(source / file.name).parent} is a symbolic link")
        found = open_file(file.name)
        size = os.fstat(found.fileno()).st_size
        if size != file.bytes:
            found.close()
            raise wrong_size(source, file, size)
        return found

    with open_file(manifest.NAME) as file:
        return manifest.parse_manifest(file.read(manifest.LIMIT_BYTES), str(source)), open_listed


INCOMPLETE = "the backup was interrupted, or is damaged: take another"


@contextmanager
def _reading_headers() -> Iterator[None]:
    """Headers that only an attacker writes are too deep for tarfile, or have negative sizes."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise tarfile.ReadError(f"invalid headers: {error}") from error


def _read_tar(source: Path, tar: tarfile.TarFile) -> tuple[Manifest, Opener]:
    members: dict[str, tarfile.TarInfo] = {}
    with _reading_headers():
        for member in tar:
            _check_member(source, member, members)
            members[member.name] = member
    last = members.pop(manifest.NAME, None)
    if last is None or last.size > manifest.LIMIT_BYTES:
        raise BackupError(f"{source} is not a whole backup: {manifest.NAME} is missing", INCOMPLETE)
    found = manifest.parse_manifest(_open_member(tar, last).read(), str(source))
    listed = {file.name: file for file in found.files}
    for name in members.keys() ^ listed.keys():
        where = (
            "the tar file, and not in its manifest" if name in members else "the manifest, and not in the tar file"
        )
        raise BackupError(f"{source}: {name} is in {where}", INCOMPLETE)
    for name, member in members.items():
        if member.size != listed[name].bytes:
            raise wrong_size(source, listed[name], member.size)
    return found, lambda file: _open_member(tar, members[file.name])


def _open_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    file = tar.extractfile(member)
    assert file is not None  # a plain file
    return file  # type: ignore[return-value]


def _check_member(source: Path, member: tarfile.TarInfo, known: dict[str, tarfile.TarInfo]) -> None:
    """Plain files of a log, each once: no path leads out of the folder, and no link or device is made."""
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None or member.pax_headers:
        raise BackupError(f"{source}: {member.name!r} is not a plain file")
    if member.name != manifest.NAME and not manifest.FILE_NAME.fullmatch(member.name):
        raise BackupError(f"{source}: {member.name!r} is not the name of a file of a log")
    if member.name in known:
        raise BackupError(f"{source}: {member.name} is there twice")


def wrong_size(source: Path, file: BackupFile, size: int) -> BackupError:
    text = f"{source}: {file.name} has {size:,} bytes, and {file.bytes:,} in the manifest"
    return BackupError(text, INCOMPLETE)
