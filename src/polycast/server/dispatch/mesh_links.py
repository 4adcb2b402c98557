"""Discovery: dials peers, sends announcements, and follows announcements of other brokers.

An announcement is a claim by a peer that may publish it. It is followed only into networks that the configuration
names, and only where the rules give the broker there any right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from ipaddress import ip_address, ip_network

from polycast.address import Address, parse_address
from polycast.broker import Mesh, Peer, PeerTable
from polycast.broker.announcements import to_announcement
from polycast.broker.mesh import CloseLink
from polycast.dialects.guard import SHOWN_CHARACTERS
from polycast.dialects.registry import ROLES
from polycast.dialects.settings import MeshSettings
from polycast.errors import UsageError
from polycast.model import Burst, Contains
from polycast.server.access.access_control import AccessControl, ConnectionGuard
from polycast.server.config import parse_announce
from polycast.server.dispatch.link_control import LinkControl, to_burst
from polycast.server.dispatch.outbox import Outbox
from polycast.server.dispatch.publish_handler import PublishHandler
from polycast.server.dispatch.publisher import Publisher
from polycast.server.io.connection import DETAILS_AT_MOST, Connection
from polycast.server.io.outbound import Dial, DialTarget, OutboundConnections

log = logging.getLogger("polycast.links")

ROLE = "simplest.peer"
DIALECT = ROLES[ROLE].dialect
ADDRESSES_PER_HOST = 4
"""How many announced brokers of one address are linked."""


class MeshLinks:
    def __init__(
        self,
        settings: MeshSettings,
        mesh: Mesh,
        control: LinkControl,
        publisher: Publisher,
        publishing: PublishHandler,
        outbox: Outbox,
        access: AccessControl,
        dial: Dial,
    ) -> None:
        self._settings = settings
        self._mesh = mesh
        self._control = control
        self._publisher = publisher
        self._publishing = publishing
        self._outbox = outbox
        self._peers = PeerTable()
        self._access = access
        self._networks = [ip_network(text) for text in settings.discover_networks]
        self._logged_reasons: OrderedDict[str, None] = OrderedDict()
        """Reasons why a peer is not linked that are in the log already, the newest last."""
        self._own: list[Address] = []
        self._announcing: asyncio.Task[None] | None = None
        self.links = OutboundConnections(dial)
        control.on_close_link = self._close_link

    def start(self, listeners: list[tuple[str, Address]]) -> None:
        """To be called when it is known where this broker listens."""
        settings = self._settings
        self._own = [address for _, address in listeners]
        for peer in settings.peers:
            self.links.add(DialTarget(ROLE, parse_address(peer, "tcp")))
        if settings.discover:
            if not self._networks:
                log.warning("no announced broker is dialled: set simplest.discover_networks, as in 10.0.0.0/8")
            self._mesh.add_interest(Contains(f"//peers/{org}/") for org in settings.discover)
            self._publishing.on_burst = self._find_peers
        if settings.announce:
            links = [address for name, address in listeners if name == ROLE]
            self._control.announcement = _announcement(settings.announce, links)
            self._announcing = asyncio.create_task(self._announce())

    async def stop(self) -> None:
        if self._announcing:
            self._announcing.cancel()
        await self.links.stop()

    def _close_link(self, connection: Connection, effect: CloseLink) -> None:
        twin: Connection | None = effect.duplicate.owner if effect.duplicate else None
        log.info("%s: closed: it leads to %s", connection, f"the same broker as {twin}" if twin else "this broker")
        self.links.abandon(connection, twin)
        connection.close()

    async def _announce(self) -> None:
        while True:
            if self._control.announcement:
                self._publisher.publish_own(to_burst(self._control.announcement), time.time())
                self._outbox.flush()
            await asyncio.sleep(self._settings.announce_seconds)

    def _find_peers(self, burst: Burst, now: float) -> None:
        for peer in self._peers.add_announced(burst, now):
            self._discover(peer)

    def _discover(self, peer: Peer) -> None:
        settings = self._settings
        scheme = "tls" if settings.discover_tls else "tcp"
        target = DialTarget(ROLE, Address(scheme, peer.host, peer.port), announced=True)
        if peer.org not in settings.discover or target in self.links or self._is_own(peer):
            return
        name = repr(f"{peer.org}/{peer.name}"[:SHOWN_CHARACTERS])
        if reason := self._why_not(peer.host):
            self._log_once(f"peer {name}: not linked: {reason}")
            return
        log.info("peer %s: announced at %s:%s", name, peer.host, peer.port)
        self.links.add(target)

    def _why_not(self, host: str) -> str:
        """Why a broker that is announced at this address is not dialled; empty: it is."""
        settings, address = self._settings, ip_address(host)
        if not any(address in network for network in self._networks):
            return f"{host} is in none of simplest.discover_networks"
        identity = self._access.identify_dialled(host, None, announced=True)
        if not settings.discover_tls and ConnectionGuard(self._access, identity, DIALECT).has_no_rights:
            return f"{identity} has no rights; add a rule such as '{identity} may publish+subscribe a.>'"
        if self.links.announced_at(host) >= ADDRESSES_PER_HOST:
            return f"{host} is linked at {ADDRESSES_PER_HOST} ports already, the limit for one address"
        if self.links.announced >= settings.links:
            return f"{settings.links} links is the limit (simplest.links)"
        return ""

    def _log_once(self, reason: str) -> None:
        """Logs each reason once, although announcements are repeated; remembers the newest reasons."""
        if reason in self._logged_reasons:
            self._logged_reasons.move_to_end(reason)
            return
        self._logged_reasons[reason] = None
        if len(self._logged_reasons) > DETAILS_AT_MOST:
            self._logged_reasons.popitem(last=False)
        log.warning("%s", reason)

    def _is_own(self, peer: Peer) -> bool:
        announced = self._control.announcement
        own = {(address.host, address.port) for address in self._own}
        here = announced is not None and announced[1].decode() == f"{peer.host} {peer.port}"
        return here or (peer.host, peer.port) in own


def _announcement(text: str, own: list[Address]) -> tuple[bytes, bytes]:
    org, name, address = parse_announce(text)
    if address is None:
        address = next((address for address in own if address.port), None)
        if address is None:
            hint = "add --listen simplest.peer=tcp://HOST:PORT, or write --announce ORG/NAME=HOST:PORT"
            raise UsageError("--announce needs an address that others can link to", hint)
        if address.host in ("0.0.0.0", "::"):
            hint = f"write --announce {text}=HOST:{address.port} with the address that others see"
            raise UsageError(f"{address.host} is no address that others can link to", hint)
    return to_announcement(org, name, address.host, address.port)
