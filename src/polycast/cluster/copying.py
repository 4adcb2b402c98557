"""Copies the log of another node, while that node and the cluster continue to work.

Segments are only appended to, and snapshots never change. A copy of all files, with the last segment cut off
anywhere, is therefore a log that recovery accepts; its last group has the matching stream position. The digest of
every file is compared. The copy replaces the log when it is complete.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from pathlib import Path
from typing import Annotated

import msgspec
import xxhash

from polycast.cluster.peers import NodeStatus, collect, request_node
from polycast.cluster.stream import Stream, StreamInfo
from polycast.errors import ClusterError
from polycast.log.files.disk import DISK
from polycast.log.files.folder import BATCHES, HOT, SEALED, TOPICS, make_folder
from polycast.log.files.state import NAME as STATE

log = logging.getLogger("polycast.cluster")

CHUNK_BYTES = 512 * 1024
ATTEMPTS = 5
"""A file may be sealed or removed while it is copied; then the copy starts again."""
COPIED = re.compile(
    rf"[0-9]{{20}}(?:{'|'.join(map(re.escape, (HOT, SEALED, TOPICS, BATCHES)))})|{re.escape(STATE)}"
)
UNFINISHED = ".copying"


class NoSourceError(ClusterError):
    pass


NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class FileRange(msgspec.Struct, frozen=True):
    name: str
    at: NotNegative = 0
    size: NotNegative = 0


# -- at the node that has the log ------------------------------------------------------------------------


def list_files(folder: Path) -> list[FileRange]:
    """The files in the order to copy them: snapshots first, because segments grow meanwhile."""
    found = [
        FileRange(path.name, 0, path.stat().st_size)
        for path in sorted(folder.iterdir())
        if COPIED.fullmatch(path.name)
    ]
    return sorted(found, key=lambda file: file.name.endswith((HOT, SEALED)))


def read_range(folder: Path, wanted: FileRange) -> bytes:
    with _path(folder, wanted).open("rb") as file:
        file.seek(wanted.at)
        return file.read(min(wanted.size, CHUNK_BYTES))


def digest_range(folder: Path, wanted: FileRange) -> str:
    """The digest of the first `size` bytes."""
    digest = xxhash.xxh3_128()
    left = wanted.size
    with _path(folder, wanted).open("rb") as file:
        while left and (data := file.read(min(left, CHUNK_BYTES))):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


def _path(folder: Path, wanted: FileRange) -> Path:
    if not COPIED.fullmatch(wanted.name):
        raise FileNotFoundError(wanted.name)
    return folder / wanted.name


# -- at the node that needs it ---------------------------------------------------------------------------


async def copy_log(stream: Stream, node: str, folder: Path, info: StreamInfo) -> None:
    source = await find_source(stream, node, info)
    target = folder.with_name(folder.name + UNFINISHED)
    for attempt in range(ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        make_folder(target, DISK)
        try:
            size = await _copy_all(stream, source.node, target)
        except ClusterError as error:
            log.warning("copying the log again: %s", error)
            if attempt == ATTEMPTS - 1:
                raise
            continue
        break
    shutil.rmtree(folder, ignore_errors=True)  # empty: move_aside has moved a log
    target.rename(folder)
    DISK.sync_folder(folder.parent)
    log.info("copied the log of the node %s: %s bytes", source.node, f"{size:,}")


async def find_source(stream: Stream, node: str, info: StreamInfo) -> NodeStatus:
    """The node that has applied the most of this stream, if the stream still has what follows."""
    found = [status for status in await collect(stream) if status.node != node and status.stream == info.id]
    usable = [status for status in found if status.sequence + 1 >= info.first]
    if not usable:
        text = f"this node needs a copy of the log: the stream begins at message {info.first:,}"
        if info.genesis.next:
            text += f", and at offset {info.genesis.next:,}"
        raise NoSourceError(
            f"{text}; no running node has these messages", "start the node with the longest log first"
        )
    return max(usable, key=lambda status: status.sequence)


async def _copy_all(stream: Stream, source: str, target: Path) -> int:
    listed = msgspec.json.decode(await request_node(stream, source, "files"), type=list[FileRange])
    total = 0
    for file in listed:
        if not COPIED.fullmatch(file.name):
            raise ClusterError(f"the node {source} lists {file.name!r}, which is not a file of a log")
        await _copy_file(stream, source, target, file)
        total += file.size
    DISK.sync_folder(target)
    return total


async def _copy_file(stream: Stream, source: str, target: Path, file: FileRange) -> None:
    digest = xxhash.xxh3_128()
    began = time.monotonic()
    with (target / file.name).open("wb") as out:
        at = 0
        while at < file.size:
            wanted = FileRange(file.name, at, min(CHUNK_BYTES, file.size - at))
            data = await request_node(stream, source, "read", wanted)
            if not data:
                raise ClusterError(f"{file.name} became shorter while it was copied")
            out.write(data)
            digest.update(data)
            at += len(data)
        await asyncio.to_thread(DISK.sync, out.fileno())
    there = msgspec.json.decode(await request_node(stream, source, "digest", file), type=str)
    if there != digest.hexdigest():
        raise ClusterError(f"{file.name} has the digest {digest.hexdigest()} here and {there} at {source}")
    log.debug("%s: %s bytes in %.1f s", file.name, f"{file.size:,}", time.monotonic() - began)


def move_aside(folder: Path) -> None:
    """Renames the folder. Only the operator removes it."""
    target = folder.with_name(f"{folder.name}.before-{int(time.time())}")
    folder.rename(target)
    DISK.sync_folder(folder.parent)
    log.warning("the stream has removed what this node needs next; its log was moved to %s", target)
