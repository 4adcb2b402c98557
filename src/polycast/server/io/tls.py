"""TLS, below the dialects: certificates are read here, and connections pass through a doorway.

There is one context for those who come, and one for the servers that the broker dials.

When a peer and the broker have agreed, a connection begins like those of any tcp listener; if they cannot, that is
counted and logged, and nobody else notices. Whoever comes is shown the certificate that was read last.

Nobody waits in line: whoever comes is let in at once. Where too many have not agreed yet, the oldest of them from
the address that has the most makes room, and a peer that has something to say has said it by then.
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
from polycast.server.io.address_groups import AddressGroups, address_group_of
from polycast.server.io.connection import Connection
from polycast.server.io.connection_slots import DISPLACED
from polycast.server.stats.counters import Counters

log = logging.getLogger("polycast.tls")

EXPIRED, NOT_YET_VALID = 10, 9
"""What OpenSSL calls them (X509_V_ERR_...)."""
SHUTDOWN_SECONDS = 5.0
"""How long a peer may take to say goodbye in its turn."""
FULL_SECONDS = 1.0
"""How long nobody is let in when the system has no more files."""
AT_ONCE = 64
"""So many are let in before others get their turn."""
PENDING_AT_MOST = 1024
"""Past it, a handshake that is not finished makes room for the next."""
ADDRESS_SHARE = 4
"""One address may have a quarter of them."""
DETAILS_AT_MOST = 1000
"""So many failures are told in the log; the others are only counted."""
FAILED = "tls"
"""What a failure is counted under."""


def to_context(settings: TlsSettings) -> ssl.SSLContext:
    """StartError: the files cannot be used."""
    certificate, key = settings.certificate, settings.key or settings.certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _check_file("tls.certificate", certificate)
    _check_file("tls.key", key)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        fits = error.reason != "KEY_VALUES_MISMATCH"
        problem = "is no certificate and key in PEM" if fits else "has another key than"
        raise StartError(f"tls.certificate {certificate}: {problem} {'' if fits else key}".rstrip()) from error
    _believe(context, settings)
    _check_time(context, certificate)
    return context


def to_dial_context(settings: TlsSettings) -> ssl.SSLContext:
    """For servers that the broker dials. StartError: the files cannot be used."""
    if settings.ca:
        _check_file("tls.ca", settings.ca)
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.ca or None)
    except ssl.SSLError as error:
        raise StartError(f"tls.ca {settings.ca}: no certificates in PEM") from error
    if settings.dial_certificate:
        certificate, key = settings.dial_certificate, settings.dial_key or settings.dial_certificate
        _check_file("tls.dial_certificate", certificate)
        _check_file("tls.dial_key", key)
        try:
            context.load_cert_chain(certificate, key, password=_no_dial_password)
        except ssl.SSLError as error:
            raise StartError(f"tls.dial_certificate {certificate}: no certificate with its key in PEM") from error
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
    """Else OpenSSL would ask whoever sits at the terminal."""
    raise StartError("tls.key is encrypted", "openssl pkey -in KEY -out NEW writes it without a password")


def _believe(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Where a certificate is required and no authority is known, no client can connect."""
    if settings.client_certificates == REQUIRED:
        context.verify_mode = ssl.CERT_REQUIRED
    if not settings.client_ca:
        return
    _check_file("tls.client_ca", settings.client_ca)
    try:
        context.load_verify_locations(settings.client_ca)
    except ssl.SSLError as error:
        raise StartError(f"tls.client_ca {settings.client_ca}: no certificates in PEM") from error
    if settings.client_certificates != REQUIRED:
        context.verify_mode = ssl.CERT_OPTIONAL


def _check_time(context: ssl.SSLContext, certificate: str) -> None:
    """Python does not tell what a certificate says; whoever is shown it does."""
    looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looking.check_hostname = False
    looking.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    looking.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = looking.wrap_bio(back, there), context.wrap_bio(there, back, server_side=True)
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
    """A listening socket whose connections are encrypted. `context` may be replaced while it listens."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        to_connection: Callable[[], Connection],
        counters: Counters,
        seconds: float,
        most: int = PENDING_AT_MOST,
    ) -> None:
        """`seconds` is how long a peer may take to agree, `most` how many may be about to."""
        self.context = context
        self._socket = sock
        self._to_connection = to_connection
        self._counters = counters
        self._seconds = seconds
        self._most = most
        self._per_address = max(1, most // ADDRESS_SHARE)
        self._pending: dict[asyncio.Task[None], str] = {}
        """The handshakes that are not finished, with the names of their peers."""
        self._crowd: AddressGroups[asyncio.Task[None]] = AddressGroups()
        """Those of them that were not told to end."""
        self._loop = asyncio.get_running_loop()
        self._open = True
        sock.setblocking(False)
        self._let_in()

    def close(self) -> None:
        """Who is not through by now never will be."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket)
            self._socket.close()
            for task in self._pending:
                task.cancel()

    def _let_in(self) -> None:
        if self._open:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, place = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot let anybody in: %s", error.strerror)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(FULL_SECONDS, self._let_in)
                return
            accepted.setblocking(False)
            self._make_room(address_group_of(place[0]))
            name = f"{place[0]}:{place[1]}"
            task = self._loop.create_task(self._pass(accepted, name))
            self._pending[task] = name
            self._crowd.add(task, address_group_of(place[0]))
            task.add_done_callback(self._passed)

    def _make_room(self, origin: str) -> None:
        if self._crowd.of(origin) >= self._per_address:
            self._displace(self._crowd.oldest(origin), f"{self._per_address:,} from its address")
        elif len(self._crowd) >= self._most:
            self._displace(self._crowd.first_to_go(), f"{self._most:,}")

    def _displace(self, task: asyncio.Task[None] | None, most: str) -> None:
        if task is not None:
            self._crowd.discard(task)
            task.cancel()
            reason = f"unfinished handshake, makes room for another: {most} are unfinished"
            self._report(DISPLACED, self._pending[task], reason)

    def _passed(self, task: asyncio.Task[None]) -> None:
        self._pending.pop(task)
        self._crowd.discard(task)

    def _report(self, kind: str, name: str, reason: str) -> None:
        self._counters.closed[kind] += 1
        worth = self._counters.closed[kind] <= DETAILS_AT_MOST
        log.log(logging.WARNING if worth else logging.DEBUG, "%s: no TLS: %s", name, reason)

    async def _pass(self, accepted: socket.socket, name: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._to_connection,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=self._seconds,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError as error:
            self._report(FAILED, name, _reason(error))


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error) or "it left"
