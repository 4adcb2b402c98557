"""The other brokers: whom to dial, what to announce, which announcements to follow."""

from __future__ import annotations

import asyncio
import logging
import time

from polycast.address import Address, parse_address
from polycast.broker import Peer
from polycast.broker.mesh import Unlink
from polycast.broker.peers import to_announcement
from polycast.errors import UsageError
from polycast.model import Contains
from polycast.server.config import parse_announce
from polycast.server.connection import Connection
from polycast.server.exchange import Exchange
from polycast.server.links import Dial, Links, Place
from polycast.server.settings import SimplestSettings

log = logging.getLogger("polycast.neighbours")

ROLE = "simplest.peer"


class Neighbours:
    def __init__(self, settings: SimplestSettings, exchange: Exchange, dial: Dial) -> None:
        self._settings = settings
        self._exchange = exchange
        self._own: list[Address] = []
        self._announcing: asyncio.Task[None] | None = None
        self.links = Links(dial)
        exchange.on_unlink = self._unlink

    def start(self, listeners: list[tuple[str, Address]]) -> None:
        """To be called when it is known where this broker listens."""
        settings = self._settings
        self._own = [address for _, address in listeners]
        for peer in settings.peers:
            self.links.add(Place(ROLE, parse_address(peer, "tcp")))
        if settings.discover:
            self._exchange.mesh.want(Contains(f"//peers/{org}/") for org in settings.discover)
            self._exchange.on_peer = self._discover
        if settings.announce:
            links = [address for name, address in listeners if name == ROLE]
            self._exchange.announcement = _announcement(settings.announce, links)
            self._announcing = asyncio.create_task(self._announce())

    async def stop(self) -> None:
        if self._announcing:
            self._announcing.cancel()
        await self.links.stop()

    def _unlink(self, connection: Connection, effect: Unlink) -> None:
        twin: Connection | None = effect.twin.owner if effect.twin else None
        log.info("%s: closed: it leads to %s", connection, f"the same broker as {twin}" if twin else "this broker")
        self.links.give_up(connection, twin)
        connection.leave()

    async def _announce(self) -> None:
        while True:
            self._exchange.announce(time.time())
            await asyncio.sleep(self._settings.announce_seconds)

    def _discover(self, peer: Peer) -> None:
        settings = self._settings
        place = Place(ROLE, Address("tcp", peer.host, peer.port))
        if peer.org not in settings.discover or place in self.links or self._is_own(peer):
            return
        if len(self.links) >= settings.links + len(settings.peers):
            limit = f"{settings.links} links is the limit (simplest.links)"
            log.warning("peer %s/%s: not linked: %s", peer.org, peer.name, limit)
            return
        log.info("peer %s/%s: announced at %s:%s", peer.org, peer.name, peer.host, peer.port)
        self.links.add(place)

    def _is_own(self, peer: Peer) -> bool:
        announced = self._exchange.announcement
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
