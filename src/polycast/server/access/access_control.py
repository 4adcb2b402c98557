"""Access control: the rules, networks and tokens in force, and the guard of each connection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polycast.dialects.guard import Guard
from polycast.model import Pattern
from polycast.server.access import tokens
from polycast.server.access.http_allowlist import HttpAllowlist
from polycast.server.access.identity import from_address, from_certificate, parse_networks
from polycast.server.access.rules import ANONYMOUS, DIALLED, LOOPBACK, Rights, parse_rule, rights_of
from polycast.server.access.settings import AccessSettings
from polycast.server.access.tokens import Token


class AccessControl:
    def __init__(self, settings: AccessSettings, data: Path) -> None:
        """StartError: the token file cannot be used."""
        self._file = data / tokens.FILE
        self._read_signature = self._signature()
        self._tokens = tokens.read_tokens(self._file)
        self._rights: dict[tuple[str, str], Rights | None] = {}
        self.adopt(settings)

    def adopt(self, settings: AccessSettings) -> None:
        """Put settings in force. They were validated when they were loaded."""
        self.settings = settings
        self.sites = HttpAllowlist(settings)
        self._networks = parse_networks(settings.networks)
        self._rights.clear()
        self.ruled = settings.rules != AccessSettings().rules
        """Whether the configuration has rules of its own."""

    def reread(self) -> None:
        """StartError: the token file cannot be used; the tokens read before stay valid."""
        self._read_signature = self._signature()
        self._tokens = tokens.read_tokens(self._file)
        self._rights.clear()

    def is_outdated(self) -> bool:
        """Whether the token file has changed since it was read."""
        return self._signature() != self._read_signature

    def _signature(self) -> tuple[int, ...]:
        try:
            found = self._file.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    # -- identities and rights ---------------------------------------------------------------------------

    def identify(self, host: str | None, certificate: Mapping[str, Any] | None) -> str:
        """`host` is None for a Unix socket, empty if unknown."""
        return from_certificate(certificate) or from_address(host, self._networks)

    def identify_dialled(self, host: str | None, certificate: Mapping[str, Any] | None, announced: bool) -> str:
        """The identity of a dialled server; `announced`: a mesh announcement named it, not the configuration.

        Every account of this machine can listen and announce, so an announced server is never `loopback`.
        """
        identity = self.identify(host, certificate)
        return DIALLED if identity == ANONYMOUS or (announced and identity == LOOPBACK) else identity

    def find(self, digest: str) -> Token | None:
        return tokens.find(self._tokens, digest)

    def rights(self, identity: str, dialect: str) -> Rights | None:
        """None: everything is allowed."""
        key = identity, dialect
        if key not in self._rights:
            texts = [*self.settings.rules, *(rule for token in self._tokens for rule in token.rules)]
            self._rights[key] = rights_of(map(parse_rule, texts), identity, dialect)
        return self._rights[key]


class ConnectionGuard(Guard):
    """The identity of one connection, by its address, certificate or token, and its rights."""

    def __init__(self, access: AccessControl, identity: str, dialect: str, configured: bool = False) -> None:
        """`configured`: the configuration names the peer's address; without rules, everything is allowed."""
        self._access = access
        self._initial_identity = identity
        self.configured = configured
        self._digest = ""
        """The digest of the token that the peer has shown."""
        self._dialect = dialect
        self._set_identity(identity)

    def _set_identity(self, identity: str) -> None:
        self.identity = identity
        trusted = self.configured and not self._access.ruled
        rights = None if trusted else self._access.rights(identity, self._dialect)
        self._rights = rights
        self.known = identity != ANONYMOUS
        self.restricted = rights is not None
        self.has_no_rights = rights is not None and rights.none
        self.may_publish_anything = rights is None or rights.may_publish_anything
        self.admin = rights is None or rights.admin

    def refresh(self) -> bool:
        """False: the peer's token was revoked."""
        if self._digest and self._access.find(self._digest) is None:
            return False
        self._set_identity(self.identity)
        return True

    def authenticate(self, token: str | None) -> bool:
        self._digest = "" if token is None else tokens.digest_of(token)
        found = self._access.find(self._digest) if self._digest else None
        self._set_identity(found.name if found else self._initial_identity)
        return token is None or found is not None

    def set_dialect(self, dialect: str) -> None:
        self._dialect = dialect
        self._set_identity(self.identity)

    def may_use(self, dialect: str) -> bool:
        rights = self._access.rights(self.identity, dialect)
        return rights is None or not rights.none

    def may_publish(self, topic: bytes) -> bool:
        return self._rights is None or self._rights.may_publish(topic)

    def may_subscribe(self, pattern: Pattern) -> bool:
        return self._rights is None or self._rights.may_subscribe(pattern)

    def may_serve(self, route: str) -> bool:
        return self._rights is None or self._rights.may_serve(route)

    @property
    def query_patterns(self) -> list[Pattern] | None:
        return None if self._rights is None else self._rights.query_patterns

    def narrow(self, pattern: Pattern) -> list[Pattern]:
        return [pattern] if self._rights is None else self._rights.narrow(pattern)

    def allows_host(self, host: str, own: str) -> bool:
        return self._access.sites.allows_host(host, own)

    def allows_origin(self, origin: str, host: str, secure: bool) -> bool:
        return self._access.sites.allows_origin(origin, host, secure)
