"""Restores a cluster: creates a new stream that continues the log of one node.

For a stream that is gone, or that lost messages which nodes have applied. All nodes have stopped in that case,
with their logs unchanged. The node with the longest log seeds the new stream. The other nodes continue with the
new stream if their logs are equal, and copy the log of the first otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polycast.cluster.connecting import count_servers, open_stream
from polycast.cluster.divergence import check_divergence
from polycast.cluster.joining import open_node_log
from polycast.cluster.peers import collect
from polycast.cluster.stream import Agreed, ApiError, Genesis, Stream, StreamInfo
from polycast.cluster.tail import is_replaced
from polycast.errors import ClusterError, StartError
from polycast.log.files.folder import log_folder
from polycast.log.files.format import StreamPosition
from polycast.log.files.permissions import restrict, umask_of
from polycast.log.files.state import read_state
from polycast.log.log import Log
from polycast.log.repair.verify import LogFinding, verify
from polycast.server.settings import Settings


@dataclass
class LogEnd:
    log: str
    """The id of the log: the seed of its checksums."""
    next: int
    checksum: str
    position: StreamPosition

    def to_genesis(self) -> Genesis:
        at = self.position
        return Genesis(self.log, self.next, self.checksum, at.stream, at.sequence, at.chain)


async def find_end(settings: Settings) -> LogEnd:
    """The end of this node's log. Raises ClusterError if the log is damaged, or is not the log of a node."""
    folder = log_folder(settings.log.data)
    state = read_state(folder)
    if (state and state.position is None) or not folder.exists():  # to open a log writes to it
        raise _no_log_of_a_node(folder)
    check_divergence(folder)
    restrict(umask_of(Path(settings.log.data)))
    node_log = open_node_log(settings)
    try:
        end = LogEnd(node_log.seed, node_log.next, node_log.checksum, _position(node_log))
    finally:
        node_log.release()
    for report in verify(folder):
        if isinstance(report, LogFinding) and not report.note:
            hint = "restore from another node; this one then copies its log"
            raise ClusterError(f"{folder} is damaged: {report.what}", hint)
    return end


async def restore(settings: Settings, replace: bool) -> LogEnd:
    """With `replace`, removes the existing stream and its messages."""
    end = await find_end(settings)
    stream = await open_stream(settings)
    try:
        await _remove(stream, end, replace)
        servers = count_servers(stream.connection, settings.cluster)
        await stream.create(settings.cluster, Agreed.of(settings), end.to_genesis(), servers)
    finally:
        await stream.close()
    return end


async def _remove(stream: Stream, end: LogEnd, replace: bool) -> None:
    if running := [status.node for status in await collect(stream)]:
        raise StartError(f"these nodes run: {', '.join(running)}", "stop all nodes before the stream is restored")
    try:
        info = await stream.info()
        if info is None:
            return
    except StartError:  # a stream of another program
        if not replace:
            raise
        info = None
    if info and not replace:
        text = f"the stream {stream.name} exists, with messages {info.first:,} to {info.last:,}"
        raise StartError(text, "--replace removes it")
    at = end.position
    replaced = info and info.id == at.stream and await is_replaced(stream, at.sequence, at.digest)
    if info and not replaced and (more := find_more(info, end)):
        hint = "nothing was changed; run this command at the node with the highest sequence, or start the nodes"
        raise StartError(more, hint)
    try:
        await stream.call(f"STREAM.DELETE.{stream.name}")
    except ApiError as error:
        raise StartError(f"the stream {stream.name} cannot be removed: {error}") from error


def find_more(info: StreamInfo, end: LogEnd) -> str:
    """The messages of the stream that the log does not have. They would be lost with the stream."""
    genesis, at = info.genesis, end.position
    if info.id == at.stream:
        if info.last > at.sequence:
            return f"the stream ends at message {info.last:,}, and this log at message {at.sequence:,} of it"
    elif genesis.log == end.log and (genesis.next, info.last) > (end.next, 0):
        begins = f"the stream begins at offset {genesis.next:,}, and has {info.last:,} messages"
        return f"{begins}; this log ends at offset {end.next:,}"
    return ""


def _position(node_log: Log) -> StreamPosition:
    if node_log.position is None:
        raise _no_log_of_a_node(node_log.folder)
    return node_log.position


def _no_log_of_a_node(folder: Path) -> ClusterError:
    return ClusterError(f"{folder} is not the log of a node", "--data names the folder of a node")
