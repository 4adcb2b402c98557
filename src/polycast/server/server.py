"""The server: listeners, time limits, and a clean stop."""

from __future__ import annotations

import asyncio
import logging
import resource
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, cast

from polycast import socket_files
from polycast.address import INSIDE_TLS, SECURE, Address, parse_address
from polycast.broker import ClusterSequencer
from polycast.dialects.registry import ROLES
from polycast.dialects.session import Page, SessionContext
from polycast.errors import ForbiddenError, PolycastError, TimeoutPeerError
from polycast.server.access.access_control import AccessControl
from polycast.server.api.routes import Routes
from polycast.server.core import Core
from polycast.server.dispatch.mesh_links import MeshLinks
from polycast.server.dispatch.request_handler import may_offer
from polycast.server.io import sockets
from polycast.server.io.connection import DETAILS_AT_MOST, Connection
from polycast.server.io.connection_slots import ConnectionSlots
from polycast.server.io.dial import dial, warn_of_peers_without_rights
from polycast.server.io.listener import Listener, ListenerContext
from polycast.server.io.outbound import DialTarget, OutboundConnections
from polycast.server.io.receive_buffer import SharedMemory
from polycast.server.io.timeouts import is_idle_http, timeout_reason
from polycast.server.io.tls import PENDING_AT_MOST, TlsAcceptor, to_context, to_dial_context
from polycast.server.observe import openapi, pages
from polycast.server.settings import TABLES, LimitSettings, Settings
from polycast.server.stats.process import measure_loop

if TYPE_CHECKING:
    from polycast.log.log import Log

logger = logging.getLogger("polycast.server")

SWEEP_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15.0
"""After this time without traffic, a session with a `keep_alive` sends it."""
GOODBYE_SECONDS = 0.25
"""How long a peer may take to close its side after the broker closed its own."""
LINGER_SECONDS = 5.0
"""How long a peer may keep a connection open that the broker closed."""
SPARE_FILES = 64
"""File descriptors that are not for connections."""
PENDING_SHARE = 8
"""Unfinished handshakes may take an eighth of the file descriptors."""


class Server:
    def __init__(
        self, settings: Settings, log: Log | None = None, pages: Mapping[str, Page] | None = None,
        cluster: ClusterSequencer | None = None,
    ) -> None:  # fmt: skip
        """`pages`: public pages of the http listener by path, beside the broker's own."""
        self._pages = {openapi.PATH: openapi.PAGE, **(pages or {})}
        self.core = Core(settings, cluster.node if cluster else secrets.token_hex(8), log, cluster)
        self.access = AccessControl(settings.access, Path(settings.log.data))
        self._context = to_context(settings.tls) if settings.tls.certificate else None
        self.dial_context = to_dial_context(settings.tls) if settings.dials_securely else None
        core = self.core
        self.mesh_links = MeshLinks(
            settings.simplest,
            core.mesh,
            core.links,
            core.publisher,
            core.publishing,
            core.outbox,
            self.access,
            self._dial,
        )
        self.links = OutboundConnections(self._dial)
        core.request_handler.routes = routes = Routes(core)
        core.request_handler.publish_message = routes.publish_message
        self._listeners = ListenerContext(
            limits=lambda: core.settings.limits,
            access=self.access,
            counters=core.counters,
            budget=core.budget,
            partial_frames=core.partial_frames,
            session_context=self.session_context,
            opened=self.opened,
            received=core.dispatcher.handle,
            awaits_reply=core.dispatcher.awaits_reply,
            dropped=core.events.drop,
            spill=core.spill,
            leave=core.dispatcher.close,
            review=self.review,
            closed=self.closed,
            memory=_new_memory(settings),
            prefix=cluster.node if cluster else "",
        )
        self._slots = ConnectionSlots(*self._room_for_connections(settings.limits))
        self._servers: list[asyncio.Server | TlsAcceptor] = []
        self._periodic: list[asyncio.Task[None]] = []
        self._files: list[tuple[Path, socket_files.FileIdentity]] = []

    # -- connections ---------------------------------------------------------------------------

    def session_context(self, address: Address, dialed: bool = False) -> SessionContext:
        settings = self.core.settings
        tables = {name: getattr(settings, name) for name in TABLES}
        there = address if dialed else None
        return SessionContext(
            settings.limits.for_dialects(),
            INSIDE_TLS.get(address.scheme, address.scheme),
            address.options,
            tables,
            self.page,
            listeners=partial(pages.listeners, self.core),
            public_pages=self._pages,
            has_log=settings.log.enabled,
            log_id=self.core.log.id if self.core.log else "",
            log_next=lambda: self.core.ledger.next_offset,
            batch_ids=settings.log.batch_ids,
            dialed=there,
            secure=address.scheme in SECURE,
            host=address.host,
            http_addresses=self._http_addresses,
        )

    def _http_addresses(self) -> str:
        return ", ".join(str(address) for name, address in self.core.addresses if name == "http")

    def page(self, path: str) -> Page | None:
        return pages.find(self.core, path) or self._pages.get(path)

    async def _dial(self, target: DialTarget) -> Connection:
        listener = Listener(self._listeners, ROLES[target.role], target.address, True, target.announced)
        connection = listener.connection()
        await dial(connection, target.address, self.dial_context)
        return connection

    def opened(self, connection: Connection) -> bool:
        counters = connection.listener.counters
        if connection.guard.has_no_rights and not connection.session.accepts_token:
            counters.closed[ForbiddenError.kind] += 1
            worth = counters.closed[ForbiddenError.kind] <= DETAILS_AT_MOST
            level = logging.WARNING if worth else logging.DEBUG
            logger.log(level, "%s: closed: %s has no rights", connection, connection.guard.identity)
            return False
        if not self._slots.acquire(connection):
            if not counters.turned_away:
                logger.warning("%s: rejected: %s", connection, self._slots.why_not(connection))
            counters.turned_away += 1
            return False
        counters.accepted += 1
        counters.open += 1
        self.core.connections[connection] = None
        logger.debug("%s: open", connection)
        self.core.dispatcher.open(connection)
        return True

    def closed(self, connection: Connection) -> None:
        if self.core.connections.pop(connection, self) is self:
            return
        self._slots.release(connection)
        connection.listener.counters.open -= 1
        logger.debug("%s: gone", connection)
        self.core.dispatcher.close(connection)
        self.links.closed(connection)
        self.mesh_links.links.closed(connection)

    def review(self, connection: Connection) -> None:
        """The rights of the connection may have changed, and with them its slot."""
        was_on_trial = connection.unauthorized_since
        self._slots.review(connection)
        if was_on_trial and not connection.unauthorized_since:
            self.core.events.admit(connection)

    def _reread_tokens(self) -> None:
        if not self.access.is_outdated():
            return
        try:
            self.access.reread()
        except PolycastError as error:
            logger.error("the tokens stay as they were: %s", error)
            return
        logger.info("tokens reread")
        self.review_all()

    def review_all(self) -> None:
        """Closes connections that lost a right they use; all others get the rights that they have now."""
        for connection in list(self.core.connections):
            if connection.closing:  # closing one connection may have closed this one
                continue
            if not _may_stay(connection, self.core.requests.served_by(connection.subscriber)):
                connection.fail(ForbiddenError())
                continue
            self.review(connection)
            if connection.subscriber.link:
                self.core.dispatcher.review_link(connection)
        self.core.outbox.flush()

    def limit_connections(self, limits: LimitSettings) -> None:
        self._slots.resize(*self._room_for_connections(limits))

    def _room_for_connections(self, limits: LimitSettings) -> tuple[int, int]:
        """Connections, as far as file descriptors suffice, and connections of one address."""
        texts = [text for texts in self.core.settings.listen.values() for text in texts]
        acceptors = sum(parse_address(text).scheme == "tls" for text in texts)
        files = _raise_files(limits.connections + SPARE_FILES + acceptors * PENDING_AT_MOST)
        pending = min(acceptors * PENDING_AT_MOST, files // PENDING_SHARE)
        self._handshakes = max(1, pending // acceptors) if acceptors else 0
        return min(limits.connections, max(1, files - SPARE_FILES - pending)), limits.connections_per_address

    def show_certificate(self, context: SSLContext) -> None:
        """New connections get this certificate."""
        self._context = context
        for server in self._servers:
            if isinstance(server, TlsAcceptor):
                server.context = context

    # -- start and stop ----------------------------------------------------------------------------------

    async def _catch_up(self, cluster: ClusterSequencer) -> None:
        assert self.core.log
        self.core.log.housekeeping.catching_up = True
        try:
            await cluster.catch_up()
        finally:
            self.core.log.housekeeping.catching_up = False
            self.core.log.housekeeping.wake()

    async def start(self) -> None:
        self.core.start()
        if self.core.cluster:
            await self._catch_up(self.core.cluster)
        self.core.offset_times.note(self.core.ledger.next_offset, time.time())
        if self.core.settings.events.enabled:
            self.core.events.start(self.core.node)
        try:
            for name, texts in self.core.settings.listen.items():
                for text in texts:
                    await self._listen(name, parse_address(text))
            self.mesh_links.start(self.core.addresses)
            for name, texts in self.core.settings.connect.items():
                for text in texts:
                    self.links.add(DialTarget(name, parse_address(text)))
        except BaseException:
            await self.stop()
            raise
        warn_of_peers_without_rights(self.access, self.core.settings)
        periodic = (self._sweep(), measure_loop(self.core.loop_delays))
        self._periodic = [asyncio.create_task(each) for each in periodic]

    async def _listen(self, name: str, address: Address) -> None:
        loop = asyncio.get_running_loop()
        listener = Listener(self._listeners, ROLES[name], address)
        for sock in sockets.listen(name, address):
            real = sockets.real_address(address, sock)
            if address.scheme == "ipc":
                self._files.append((Path(address.path), socket_files.identity(Path(address.path))))
                self._servers.append(await loop.create_unix_server(listener.connection, sock=sock))
            elif address.scheme == "tls":
                assert self._context
                seconds, most = self.core.settings.limits.handshake_seconds, self._handshakes
                acceptor = TlsAcceptor(sock, self._context, listener.connection, listener.counters, seconds, most)
                self._servers.append(acceptor)
            else:
                server = await loop.create_server(listener.connection, sock=sock, backlog=sockets.BACKLOG)
                self._servers.append(server)
            self.core.addresses.append((name, real))
        self.core.opened_listeners[name] += 1

    async def stop(self) -> None:
        """Stops accepting, makes the log durable, and sends what is queued, up to `limits.shutdown_seconds`."""
        for server in self._servers:
            server.close()
        self.core.opened_listeners.clear()
        for task in self._periodic:
            task.cancel()
        await self.mesh_links.stop()
        await self.links.stop()
        self.core.fail_requests()
        self.core.events.stop(self.core.node)
        await self._end_log()
        deadline = time.monotonic() + self.core.settings.limits.shutdown_seconds
        await self._wait_until(self._all_finished, deadline)
        for connection in list(self.core.connections):
            connection.shut_down()
        await self._wait_until(self._all_sent, deadline)
        await self._wait_until(lambda: not self.core.connections, time.monotonic() + GOODBYE_SECONDS)
        for connection in list(self.core.connections):
            if left := connection.queue.undelivered() + connection.session.withheld_bytes:
                logger.warning("%s: %s bytes were not sent in time", connection, f"{left:,}")
            connection.abort()
        await asyncio.sleep(0)
        for file, known in self._files:
            socket_files.remove(file, known)

    async def _end_log(self) -> None:
        """Accepts no more messages, waits until the accepted ones are durable, and acknowledges them."""
        log = self.core.log
        if not log:
            return
        self.core.dispatcher.drain()
        if self.core.cluster:
            await self.core.cluster.drain(self.core.settings.limits.shutdown_seconds)
        while log.durable_next < log.next:
            await asyncio.sleep(0.001)
        await self.core.stop_log_parts()
        topics = self.core.ledger.topics
        rows = [(topic.name, topic.next_sequence, topic.last_offset) for topic in topics]
        await asyncio.get_running_loop().run_in_executor(None, log.close, rows, topics.floor)

    def _all_finished(self) -> bool:
        """Connections with a window may acknowledge until all withheld messages are sent; others shut down."""
        for connection in list(self.core.connections):
            if not connection.closing and not connection.session.withheld_bytes:
                connection.shut_down()
        return all(connection.closing for connection in self.core.connections)

    def _all_sent(self) -> bool:
        return all(connection.is_delivered() for connection in self.core.connections)

    async def _wait_until(self, done: Callable[[], bool], deadline: float) -> None:
        while not done() and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    # -- time limits -------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for check in (self._reread_tokens, self._check_times, self._expire, self._check_frames):
                try:
                    check()
                except Exception:  # one failed check must not end all others
                    logger.exception("the sweep goes on after an error")

    def _check_times(self) -> None:
        now = time.monotonic()
        for connection in list(self.core.connections):
            self._check_time(connection, now)
        for member in list(self.core.budget.behind):
            self._check_progress(cast(Connection, member), now)

    def _expire(self) -> None:
        self.core.expire()
        self.core.offset_times.note(self.core.ledger.next_offset, time.time())

    def _check_time(self, connection: Connection, now: float) -> None:
        limits = self.core.settings.limits
        idle = now - connection.touched_at
        if connection.closing:
            patience = limits.stall_seconds if connection.queue.unsent() else LINGER_SECONDS
            if patience and idle >= patience:
                connection.abort()
        elif late := timeout_reason(connection, limits, now):
            connection.fail(TimeoutPeerError(late))
        elif connection.session.requests_served and is_idle_http(connection, limits, now):
            connection.close()
        elif idle >= KEEP_ALIVE_SECONDS and (comment := connection.session.keep_alive) and not connection.queued():
            connection.queue.push((comment,), len(comment), 0)
            connection.queue.flush()
        elif limits.idle_seconds and idle >= limits.idle_seconds and not connection.queued():
            connection.fail(TimeoutPeerError(f"idle for {limits.idle_seconds:g} s (limits.idle_seconds)"))

    def _check_progress(self, connection: Connection, now: float) -> None:
        limit = self.core.settings.limits.stall_seconds
        patient = connection.listener.policy == "spill"  # the queue is in the log
        if limit and not patient and connection.queue.stalled_for(now) >= limit:
            waits = f"{connection.queued():,} bytes wait for it"
            connection.disconnect("stalled", f"took nothing for {limit:g} s while {waits} (limits.stall_seconds)")

    def _check_frames(self) -> None:
        seconds = self.core.settings.limits.frame_seconds
        if seconds:
            for member, reason in self.core.partial_frames.overdue(time.monotonic(), seconds):
                cast(Connection, member).fail(TimeoutPeerError(f"{reason} (limits.frame_seconds)"))


def _may_stay(connection: Connection, served: Iterable[str]) -> bool:
    """Whether a connection still has the rights to its subscriptions and routes."""
    guard = connection.guard
    if not guard.refresh():
        return False
    if guard.has_no_rights and not connection.session.accepts_token:
        return False
    if not guard.restricted:
        return True
    link, patterns = connection.subscriber.link, connection.subscriber.patterns
    subscribed = link or all(map(guard.may_subscribe, patterns))  # a link is limited topic by topic
    return subscribed and all(may_offer(guard, route) for route in served)


def _new_memory(settings: Settings) -> SharedMemory:
    log = settings.log
    return SharedMemory(
        settings.limits.queue_bytes, log.pending_bytes, log.segment_bytes, settings.cluster.pending_bytes
    )


def _raise_files(need: int) -> int:
    """Raises the limit of open files if the system allows it, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
