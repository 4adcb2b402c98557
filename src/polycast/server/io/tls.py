"""TLS below the dialects: the contexts for listeners and for dialling, and the acceptor of TLS listeners.

A connection begins when its TLS handshake has succeeded; a failed handshake is counted and logged. New handshakes
use the certificate that was loaded last.

Every peer is accepted at once. When too many handshakes are pending, a new one displaces the oldest from the
address that has the most.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from polycast.errors import StartError
from polycast.server.access.settings import REQUIRED, TlsSettings
from polycast.server.io import sockets
from polycast.server.io.address_groups import AddressGroups, address_group_of
from polycast.server.io.connection import Connection
from polycast.server.io.connection_slots import DISPLACED
from polycast.server.stats.counters import Counters

log = logging.getLogger("polycast.tls")

EXPIRED, NOT_YET_VALID = 10, 9
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED and X509_V_ERR_CERT_NOT_YET_VALID."""
SHUTDOWN_SECONDS = 5.0
"""How long a peer may take to complete the TLS shutdown."""
ACCEPT_RETRY_SECONDS = 1.0
"""How long to stop accepting when the system is out of file descriptors."""
ACCEPTS_PER_TURN = 64
"""How many connections are accepted in one turn of the event loop."""
PENDING_AT_MOST = 1024
"""When so many handshakes are pending, a new one displaces another."""
ADDRESS_SHARE = 4
"""One address may have a quarter of the pending handshakes."""
DETAILS_AT_MOST = 1000
"""How many failures are logged; the rest are only counted."""
PEM = "certificates in PEM begin with -----BEGIN CERTIFICATE-----; openssl x509 -inform DER converts one"
FAILED = "tls"
"""The reason under which failed handshakes are counted."""


def to_context(settings: TlsSettings) -> ssl.SSLContext:
    """StartError: the files cannot be used."""
    certificate, key = settings.certificate, settings.key or settings.certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _check_file("tls.certificate", certificate)
    _check_file("tls.key", key)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        matches = error.reason != "KEY_VALUES_MISMATCH"
        problem = "is not a PEM certificate with its key" if matches else "does not match the key"
        text = f"tls.certificate {certificate}: {problem} {'' if matches else key}".rstrip()
        raise StartError(
            text, PEM if matches else "tls.key names the key that the certificate was made for"
        ) from error
    _trust(context, settings)
    _check_time(context, certificate)
    return context


def to_dial_context(settings: TlsSettings) -> ssl.SSLContext:
    """For dialling. StartError: the files cannot be used."""
    if settings.ca:
        _check_file("tls.ca", settings.ca)
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.ca or None)
    except ssl.SSLError as error:
        raise StartError(f"tls.ca {settings.ca}: has no PEM certificates", PEM) from error
    if settings.dial_certificate:
        certificate, key = settings.dial_certificate, settings.dial_key or settings.dial_certificate
        _check_file("tls.dial_certificate", certificate)
        _check_file("tls.dial_key", key)
        try:
            context.load_cert_chain(certificate, key, password=_no_dial_password)
        except ssl.SSLError as error:
            text = f"tls.dial_certificate {certificate}: is not a PEM certificate with its key"
            raise StartError(text, PEM) from error
    return context


def _no_dial_password() -> str:
    raise StartError("tls.dial_key is encrypted", "openssl pkey -in KEY -out NEW writes it without a password")


def _check_file(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise StartError(f"cannot read {name} {path}: {error.strerror}", f"set {name}") from error


def _no_password() -> str:
    """Without a callback, OpenSSL would prompt at the terminal."""
    raise StartError("tls.key is encrypted", "openssl pkey -in KEY -out NEW writes it without a password")


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """If client certificates are required and no authority is set, no client can connect."""
    if settings.client_certificates == REQUIRED:
        context.verify_mode = ssl.CERT_REQUIRED
    if not settings.client_ca:
        return
    _check_file("tls.client_ca", settings.client_ca)
    try:
        context.load_verify_locations(settings.client_ca)
    except ssl.SSLError as error:
        raise StartError(f"tls.client_ca {settings.client_ca}: has no PEM certificates", PEM) from error
    if settings.client_certificates != REQUIRED:
        context.verify_mode = ssl.CERT_OPTIONAL


def _check_time(context: ssl.SSLContext, certificate: str) -> None:
    """Verify the certificate in a handshake in memory: the ssl module cannot read the validity of a local file."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), context.wrap_bio(to_server, to_client, server_side=True)
    for end in (*ends, *ends):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in (EXPIRED, NOT_YET_VALID):
                when = "has expired" if error.verify_code == EXPIRED else "is not valid yet"
                raise StartError(f"tls.certificate {certificate} {when}", "get a new one") from error
            return
        except ssl.SSLError:
            return


class TlsAcceptor:
    """Accepts the connections of a TLS listener. `context` may be replaced at any time."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        to_connection: Callable[[], Connection],
        counters: Counters,
        seconds: float,
        most: int = PENDING_AT_MOST,
    ) -> None:
        """`seconds` limits a handshake, `most` the number of pending handshakes."""
        self.context = context
        self._socket = sock
        self._to_connection = to_connection
        self._counters = counters
        self._seconds = seconds
        self._most = most
        self._per_address = max(1, most // ADDRESS_SHARE)
        self._pending: dict[asyncio.Task[None], str] = {}
        """The pending handshakes, with the names of their peers."""
        self._groups: AddressGroups[asyncio.Task[None]] = AddressGroups()
        """The pending handshakes that were not cancelled."""
        self._loop = asyncio.get_running_loop()
        self._open = True
        sock.setblocking(False)
        self._start_accepting()

    def close(self) -> None:
        """Stop accepting, and cancel the pending handshakes."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket)
            self._socket.close()
            for task in self._pending:
                task.cancel()

    def _start_accepting(self) -> None:
        if self._open:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections: %s", error.strerror)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(ACCEPT_RETRY_SECONDS, self._start_accepting)
                return
            accepted.setblocking(False)
            sockets.limit_receive_buffer(accepted)
            self._make_room(address_group_of(address[0]))
            name = f"{address[0]}:{address[1]}"
            task = self._loop.create_task(self._handshake(accepted, name))
            self._pending[task] = name
            self._groups.add(task, address_group_of(address[0]))
            task.add_done_callback(self._handshake_done)

    def _make_room(self, group: str) -> None:
        if self._groups.of(group) >= self._per_address:
            self._displace(self._groups.oldest(group), f"{self._per_address:,} from the same address")
        elif len(self._groups) >= self._most:
            self._displace(self._groups.next_to_evict(), f"{self._most:,}")

    def _displace(self, task: asyncio.Task[None] | None, most: str) -> None:
        if task is not None:
            self._groups.discard(task)
            task.cancel()
            reason = f"handshake displaced by a new one: {most} are pending"
            self._report(DISPLACED, self._pending[task], reason)

    def _handshake_done(self, task: asyncio.Task[None]) -> None:
        self._pending.pop(task)
        self._groups.discard(task)

    def _report(self, kind: str, name: str, reason: str) -> None:
        self._counters.closed[kind] += 1
        worth = self._counters.closed[kind] <= DETAILS_AT_MOST
        log.log(logging.WARNING if worth else logging.DEBUG, "%s: TLS failed: %s", name, reason)

    async def _handshake(self, accepted: socket.socket, name: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._to_connection,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=self._seconds,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError as error:
            self._report(FAILED, name, _failure(error))


def _failure(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error) or "the peer disconnected"
