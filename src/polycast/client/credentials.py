"""Credentials of a client and TLS: options of the address, or else environment variables.

ca            POLYCAST_CA            file with the trusted certificate authorities; default: those of the
system certificate   POLYCAST_CERTIFICATE   file with the certificate of the client, and its key unless key
POLYCAST_KEY           the key is in a file of its own token         POLYCAST_TOKEN         the token; or
POLYCAST_TOKEN_FILE, a file with the token
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from polycast.address import SECURE, Address
from polycast.dialects.client_session import Credentials
from polycast.errors import UsageError

PREFIX = "POLYCAST_"
TOKEN_FILE = "POLYCAST_TOKEN_FILE"
SECRETS = ("POLYCAST_TOKEN", "POLYCAST_AT")
"""Variables that may contain a token; processes that need none do not inherit them."""
READ_BYTES = 256 * 1024


NAMES = tuple(field.name for field in fields(Credentials))


def take_credentials(address: Address) -> tuple[Address, Credentials]:
    """The address without its credentials, so that messages can show it, and the credentials."""
    unknown = sorted(set(address.options) - set(NAMES))
    if unknown:
        raise UsageError(f"unknown option {unknown[0]} in an address", f"known are {', '.join(NAMES)}")
    found = {name: address.options.get(name) or os.environ.get(PREFIX + name.upper(), "") for name in NAMES}
    found["token"] = found["token"] or _read_token(os.environ.get(TOKEN_FILE, ""))
    return replace(address, options={}), Credentials(**found)


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text().strip() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the token in {path}: {getattr(error, 'strerror', error)}") from error


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in SECRETS}


def to_context(address: Address, credentials: Credentials) -> ssl.SSLContext | None:
    """None for an address without TLS."""
    if address.scheme not in SECURE:
        return None
    try:
        context = ssl.create_default_context(cafile=credentials.ca or None)
        if credentials.certificate:
            context.load_cert_chain(credentials.certificate, credentials.key or None, password=_no_password)
    except OSError as error:
        files = " or ".join(filter(None, (credentials.ca, credentials.certificate, credentials.key)))
        raise UsageError(
            f"cannot use {files}: {error.strerror or error}", "ca, certificate and key are in PEM"
        ) from error
    return context


def _no_password() -> str:
    """Without this, OpenSSL would prompt at the terminal."""
    raise UsageError("the key is encrypted", "openssl pkey -in KEY -out NEW writes it without a password")


class TlsSocket:
    """A TLS socket with the methods of a plain one that the client uses."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        try:
            self._socket = context.wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise
        self._peeked: bytes | None = None
        self._shut = False

    def settimeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def sendall(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()

    def recv(self, size: int, flags: int = 0) -> bytes:
        """`flags` mean a non-blocking peek."""
        if flags:
            return self._peek()
        if self._peeked is not None:
            data, self._peeked = self._peeked, None
            return data
        if self._shut:
            return self._drain(size)
        try:
            return self._socket.recv(size)
        except ssl.SSLZeroReturnError:
            return b""

    def _peek(self) -> bytes:
        if self._peeked is None:
            self._socket.settimeout(0)
            try:
                self._peeked = self.recv(READ_BYTES)
            except ssl.SSLWantReadError as error:
                raise BlockingIOError from error
        return self._peeked

    def shutdown(self, how: int) -> None:
        """Sends close_notify. What the broker sends before its own can still be read, as a rule."""
        before = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            self._socket.unwrap()
            self._shut = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if error.reason != "APPLICATION_DATA_AFTER_CLOSE_NOTIFY":  # data that was in flight
                raise
        self._socket.settimeout(before)

    def _drain(self, size: int) -> bytes:
        """Data after close_notify cannot be decrypted; only its end is awaited."""
        while self._socket.recv(size):
            pass
        return b""
