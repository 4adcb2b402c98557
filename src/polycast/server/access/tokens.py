"""Tokens: a file with their digests, the identities they belong to, and their rules.

    {"tokens": [{"name": "sensors", "sha256": HEX, "created": ISO 8601, "rules": ["sensors may publish s.>"]}]}

Only digests are written. The file is replaced atomically: readers see the old or the new file, also after a crash.
Writers lock its folder. Only its owner can read it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from polycast.errors import StartError, UsageError
from polycast.log.files.permissions import check_owner
from polycast.server.access.rules import RESERVED_NAMES, check_name, parse_rule

FILE = "tokens.json"
TOKEN_BYTES = 32
MODE = 0o600
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Token(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    sha256: str
    created: str
    rules: tuple[str, ...] = ()


class TokenFile(Struct, forbid_unknown_fields=True):
    tokens: list[Token] = []


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def find(tokens: list[Token], digest: str) -> Token | None:
    """In constant time, whichever token it is, and if it is none."""
    found = None
    for token in tokens:
        if hmac.compare_digest(token.sha256, digest):
            found = token
    return found


def read_tokens(file: Path) -> list[Token]:
    """Empty if there is no file. StartError: the file cannot be read, or cannot be trusted."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            _check_trusted(file, os.fstat(opened.fileno()))
            file_content = msgspec.json.decode(opened.read(), type=TokenFile)
        for rule in (rule for token in file_content.tokens for rule in token.rules):
            parse_rule(rule)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StartError(f"cannot read {file}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as error:
        raise StartError(f"{file} is not a token file: {error}", "'polycast token' writes it") from error
    return file_content.tokens


def _check_trusted(file: Path, found: os.stat_result) -> None:
    """Write access to the file grants every right."""
    if not stat.S_ISREG(found.st_mode):
        raise StartError(f"{file} is not a regular file", "'polycast token' writes it")
    check_owner(file, found)
    if found.st_mode & OTHERS_WRITE:
        raise StartError(f"{file} is writable by other accounts", f"chmod 600 {file}")


def add_token(folder: Path, name: str, rules: list[str]) -> str:
    """The token itself; only its digest is written."""
    check_name(name)
    if name in RESERVED_NAMES:
        raise UsageError(f"{name} is a reserved name", "choose another name")
    for rule in rules:
        parse_rule(rule)
    text = secrets.token_urlsafe(TOKEN_BYTES)
    with _changing(folder) as tokens:
        if any(token.name == name for token in tokens):
            raise UsageError(f"a token for {name} exists", f"polycast token revoke {name}")
        created = datetime.now(UTC).isoformat(timespec="seconds")
        tokens.append(Token(name, digest_of(text), created, tuple(rules)))
    return text


def revoke_token(folder: Path, name: str) -> None:
    with _changing(folder) as tokens:
        left = [token for token in tokens if token.name != name]
        if len(left) == len(tokens):
            raise UsageError(f"there is no token for {name}", "'polycast token list' lists the tokens")
        tokens[:] = left


@contextmanager
def new_file(path: Path) -> Iterator[IO[str]]:
    """A new file that only its owner can read. It is removed if the block raises; an existing file is an error."""
    try:
        opened = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w")
    except FileExistsError as error:
        raise UsageError(f"{path} exists", "choose another file, or remove that one first") from error
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}") from error
    try:
        with opened:
            yield opened
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@contextmanager
def _changing(folder: Path) -> Iterator[list[Token]]:
    """Write the changed list, unless the block raises."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = read_tokens(folder / FILE)
            yield tokens
            _write(folder / FILE, msgspec.json.format(msgspec.json.encode(TokenFile(tokens)), indent=2))
            os.fsync(lock)
        finally:
            os.close(lock)
    except OSError as error:
        raise StartError(f"cannot write {folder / FILE}: {error.strerror}") from error


def _write(file: Path, data: bytes) -> None:
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
