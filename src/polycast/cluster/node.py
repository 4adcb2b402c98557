"""A node of a cluster as a process: joins the stream, catches up, serves, and stops after a fatal error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

from polycast.cluster.connecting import open_stream
from polycast.cluster.divergence import check_divergence
from polycast.cluster.joining import join, offer_log
from polycast.cluster.managed_server import ManagedServer
from polycast.cluster.name_claim import NameClaim
from polycast.cluster.sequencer import JetStreamSequencer
from polycast.cluster.stream import Stream
from polycast.cluster.watch import Watch
from polycast.dialects.session import Page
from polycast.log.files.folder import log_folder
from polycast.server.run import Read, run_server
from polycast.server.server import Server
from polycast.server.settings import Settings

log = logging.getLogger("polycast.cluster")


async def run(settings: Settings, show: Callable[[str], None], pages: Mapping[str, Page], read: Read) -> None:
    async with ManagedServer(settings) if settings.cluster.manage else contextlib.nullcontext():
        stream = await open_stream(settings, partial(offer_log, settings))
        try:
            await _run(settings, stream, show, pages, read)
        finally:
            await stream.close()


async def _run(
    settings: Settings, stream: Stream, show: Callable[[str], None], pages: Mapping[str, Page], read: Read
) -> None:
    wanted = settings.cluster
    check_divergence(log_folder(settings.log.data))
    claim = NameClaim(stream, wanted.node)
    await claim.start()
    joined = await join(settings, stream)
    sequencer = JetStreamSequencer(wanted.node, stream, joined.log, wanted.pending_bytes, joined.info)
    server = Server(settings, joined.log, pages, sequencer)
    async with Watch(sequencer, joined, server, claim):
        await run_server(server, show, read, sequencer.failed)
