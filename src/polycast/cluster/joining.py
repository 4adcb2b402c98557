"""Joining: how the log of a node and the stream belong together, before anything is applied.

folder                     stream                              the node
empty                      none                                creates the stream
empty                      begins with an empty log            reads it from the start
empty                      anything else                       copies the log of another node
log of a single broker     none                                creates the stream; its log is the beginning
log of this stream         has what follows                    reads on
log of this stream         has removed what follows            copies the log of another node
log of the stream before   was seeded from an equal log        reads on
anything else                                                  refuses to start, and changes nothing
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec
from nats.aio.msg import Msg

from polycast.cluster.connecting import STARTING_SECONDS, count_servers
from polycast.cluster.copying import NoSourceError, copy_log, find_source, move_aside
from polycast.cluster.machine import to_resume
from polycast.cluster.peers import gather, respond_to
from polycast.cluster.stream import Agreed, ApiError, Genesis, Stream, StreamInfo, check_agreed, check_replicas
from polycast.cluster.tail import check_tail
from polycast.errors import ClusterError, PolycastError, StartError
from polycast.log.files.folder import log_folder, segments
from polycast.log.files.format import StreamPosition
from polycast.log.files.state import read_state
from polycast.log.log import Log
from polycast.log.read.seek import first_offset
from polycast.log.read.segment_info import read_segment_info
from polycast.server.run import open_log
from polycast.server.settings import Settings

log = logging.getLogger("polycast.cluster")

RESTORE = "polycast cluster restore"
AGAIN_SECONDS = 0.5
NO_RESPONSE = 503
OFFER_SECONDS = 0.5


@dataclass
class Joined:
    log: Log
    info: StreamInfo


async def offer_log(settings: Settings, stream: Stream) -> None:
    """Nodes with an empty folder leave the creation of the stream to a node with the log of a single broker. With
    managed servers, all nodes may find a majority in the same moment."""
    folder = log_folder(settings.log.data)
    state = read_state(folder)

    async def respond(message: Msg) -> None:
        await respond_to(message, settings.cluster.node.encode())

    if state and state.position is None and await asyncio.to_thread(_has_messages, folder):
        await stream.subscribe("offered", respond)


def _has_messages(folder: Path) -> bool:
    """Also if all were removed. A log that never had a message is no beginning to wait for."""
    return any(segment.first or read_segment_info(segment).rows for segment in segments(folder))


async def join(settings: Settings, stream: Stream) -> Joined:
    folder = log_folder(settings.log.data)
    agreed = Agreed.of(settings)
    info = await _find_stream(settings, stream)
    if info:
        check_replicas(info, settings.cluster)
    if _is_empty(folder):
        info = info or await _create(settings, stream, agreed, Genesis(log=secrets.token_hex(8)))
        check_agreed(info, agreed)
        return await _join_empty(settings, stream, info)
    if info:
        check_agreed(info, agreed)
    node_log = open_node_log(settings)
    try:
        info = info or await _create_from(settings, stream, agreed, node_log)
        joined = _join_with(stream, info, node_log)
        if node_log.position and node_log.position.stream == info.id:
            await check_tail(stream, node_log.position.sequence, node_log.position.digest)
        joined = joined or await _join_without_parts(settings, stream, info, node_log)
    except BaseException:
        node_log.release()
        raise
    if joined:
        return Joined(node_log, info)
    node_log.release()
    move_aside(node_log.folder)
    return await _copy(settings, stream, info)


async def _find_stream(settings: Settings, stream: Stream) -> StreamInfo | None:
    """None: it does not exist. Waits for a leader, as `open_stream`: an election may have just begun."""
    deadline = asyncio.get_running_loop().time() + STARTING_SECONDS
    while True:
        try:
            return await stream.info()
        except ApiError as error:
            late = asyncio.get_running_loop().time() > deadline and not settings.cluster.manage
            if late or error.code != NO_RESPONSE:
                text = f"the stream {stream.name} does not respond: {error}"
                raise StartError(text, "a majority of the servers must run") from error
        await asyncio.sleep(AGAIN_SECONDS)


def _is_empty(folder: Path) -> bool:
    return not folder.exists() or (read_state(folder) is None and not segments(folder))


async def _create(settings: Settings, stream: Stream, agreed: Agreed, genesis: Genesis) -> StreamInfo:
    servers, waiting = count_servers(stream.connection, settings.cluster), ""
    while True:
        if genesis.next or not await gather(stream, "offered", b"", OFFER_SECONDS, 1):
            try:
                await stream.create(settings.cluster, agreed, genesis, servers)
            except StartError as error:
                waiting = _await_others(settings, error, waiting)
        if info := await _find_stream(settings, stream):
            return info
        await asyncio.sleep(AGAIN_SECONDS)


def _await_others(settings: Settings, error: PolycastError, before: str) -> str:
    """A node with a managed server waits for other hosts: if it ended, its server would end as well."""
    if not settings.cluster.manage:
        raise error
    if str(error) != before:
        log.warning("%s; waiting for other servers and nodes", error)
    return str(error)


async def _join_empty(settings: Settings, stream: Stream, info: StreamInfo) -> Joined:
    if info.genesis.next or info.first > 1:
        return await _copy(settings, stream, info)
    node_log = open_node_log(settings, info.genesis.log)
    node_log.join_stream(StreamPosition(info.id, chain=info.genesis.log))
    return Joined(node_log, info)


async def _create_from(settings: Settings, stream: Stream, agreed: Agreed, node_log: Log) -> StreamInfo:
    """A stream that goes on where the log of a single broker ends."""
    if position := node_log.position:
        raise _lost(f"the stream {stream.name} is gone, and this node has applied {position.sequence:,} messages")
    return await _create(settings, stream, agreed, Genesis(node_log.seed, node_log.next, node_log.checksum))


def _join_with(stream: Stream, info: StreamInfo, node_log: Log) -> bool:
    """False: this node needs a copy of the log of another one."""
    position = node_log.position
    if position is None:
        _join_first(node_log, info)
        return True
    if position.stream != info.id:
        return _join_seeded(node_log, position, info)
    if info.last < position.sequence:
        ends = f"the stream {stream.name} ends at message {info.last:,}"
        raise _lost(f"{ends}, and this node has applied {position.sequence:,}")
    return info.first <= to_resume(position)


async def _join_without_parts(settings: Settings, stream: Stream, info: StreamInfo, node_log: Log) -> bool:
    """The log has all that was applied, and the stream has removed only parts of messages that their nodes did not
    finish. A node that runs may still have these parts: without such a node, all nodes drop them."""
    position = node_log.position
    if position is None or position.stream != info.id or info.first > position.sequence + 1:
        return False
    try:
        await find_source(stream, settings.cluster.node, info)
        return False
    except NoSourceError:
        parts = {node: first for node, first in position.parts.items() if first >= info.first}
        log.warning("the stream has removed parts of unfinished messages, and no other node has them: dropped")
        node_log.join_stream(msgspec.structs.replace(position, parts=parts))
        return True


def _join_first(node_log: Log, info: StreamInfo) -> None:
    """The log of a single broker."""
    genesis = info.genesis
    if (genesis.log, genesis.next, genesis.checksum) != (node_log.seed, node_log.next, node_log.checksum):
        text = f"{node_log.folder} has the log of a single broker, which is not the beginning of this cluster"
        raise StartError(text, "--data DIR with an empty folder: the node then copies the log of another node")
    floor = node_log.recovered.floor
    first = first_offset(node_log.folder)
    position = StreamPosition(info.id, 0, genesis.log, {}, (0, node_log.next), floor)
    node_log.join_stream(msgspec.structs.replace(position, first=node_log.next if first is None else first))


def _join_seeded(node_log: Log, position: StreamPosition, info: StreamInfo) -> bool:
    """False: the log that the stream was seeded from has more than this one."""
    genesis = info.genesis
    if (genesis.stream, genesis.sequence, genesis.chain) == (position.stream, position.sequence, position.chain):
        node_log.join_stream(to_seeded(position, info.id))
        return True
    if genesis.stream == position.stream and position.sequence < genesis.sequence:
        return False
    text = f"{info.id!r} is not the stream that this node has applied ({position.stream!r})"
    hint = (
        "nothing was changed; move the data folder away, and the node copies the log of another one. Only if no "
        f"other node has a longer log: {RESTORE} --replace"
    )
    raise ClusterError(text, hint)


def to_seeded(position: StreamPosition, stream: str) -> StreamPosition:
    """The first position in a stream that was seeded from a node at this position."""
    return msgspec.structs.replace(
        position, stream=stream, sequence=0, proposers={}, parts={}, staged=0, digest=""
    )


def _lost(text: str) -> ClusterError:
    return ClusterError(text, f"nothing was changed; {RESTORE} creates a new stream from the longest log")


async def _copy(settings: Settings, stream: Stream, info: StreamInfo) -> Joined:
    waiting = ""
    while True:
        try:
            await copy_log(stream, settings.cluster.node, log_folder(settings.log.data), info)
            break
        except NoSourceError as error:
            waiting = _await_others(settings, error, waiting)
        await asyncio.sleep(AGAIN_SECONDS)
    node_log = open_node_log(settings)
    if not node_log.position or node_log.position.stream != info.id:
        node_log.release()
        raise ClusterError(f"the copied log does not belong to the stream {info.id!r}")
    return Joined(node_log, info)


def open_node_log(settings: Settings, seed: str = "") -> Log:
    opened = open_log(settings, exact=True, seed=seed)
    assert opened
    return opened
