"""The manifest of a backup: its files, with sizes and digests. Without it, a backup is incomplete.

manifest.json                    {"format": 1, "version": 2, "log": id, "created": time, "first": offset,
                                  "next": offset, "files": [{"name", "bytes", "sha256"}, ...]}
00000000000000000000.parquet     the files of the log, under their names; quarantine/ as in the log
state.json
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from polycast.errors import BackupError
from polycast.log.files.format import VERSION

NAME = "manifest.json"
FORMAT = 1
LIMIT_BYTES = 256 * 1024 * 1024
FILE_NAME = re.compile(
    r"[0-9]{20}\.(?:arrows|parquet|topics|batches)|state\.json|quarantine/[0-9][0-9A-Za-z._-]{0,120}"
)
"""The files of a log. Nothing else is restored."""


class BackupFile(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    version: int = VERSION
    """Version of the log's files."""
    log: str
    """The identity of the log."""
    created: str
    first: int
    next: int
    """The messages before this offset are in the backup."""
    files: list[BackupFile]

    @property
    def total(self) -> int:
        return sum(file.bytes for file in self.files)


class _Versions(msgspec.Struct):
    format: int
    version: int


def to_json(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"


def parse_manifest(text: bytes, where: str) -> Manifest:
    """Raises BackupError if it is no manifest, or one that this program cannot read."""
    try:
        found = msgspec.json.decode(text, type=_Versions)
        for number, known in ((found.format, FORMAT), (found.version, VERSION)):
            if number > known:
                raise BackupError(
                    f"{where} was written by a newer version of Polycast: {number}, this one reads {known}",
                    "restore it with that version, or a newer one",
                )
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupError(f"{where}: its manifest cannot be read: {error}", "take another backup") from error
    _check(manifest, where)
    return manifest


def _check(manifest: Manifest, where: str) -> None:
    names = Counter(file.name for file in manifest.files)
    for file in manifest.files:
        if not FILE_NAME.fullmatch(file.name):
            raise BackupError(f"{where}: {file.name!r} is not the name of a file of a log")
        if names[file.name] > 1:
            raise BackupError(f"{where}: {file.name} is listed {names[file.name]} times")
        if file.bytes < 0:
            raise BackupError(f"{where}: {file.name} has {file.bytes:,} bytes")
    if "state.json" not in names:
        raise BackupError(f"{where}: state.json is missing", "take another backup")
