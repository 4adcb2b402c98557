"""The one place that decides: rules, networks and tokens as they hold now."""

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
        """StartError: the file of tokens cannot be used."""
        self._file = data / tokens.FILE
        self._seen = self._look()
        self._tokens = tokens.read_tokens(self._file)
        self._rights: dict[tuple[str, str], Rights | None] = {}
        self.adopt(settings)

    def adopt(self, settings: AccessSettings) -> None:
        """These hold from now on. They have been checked when they were read."""
        self.settings = settings
        self.sites = HttpAllowlist(settings)
        self._networks = parse_networks(settings.networks)
        self._rights.clear()
        self.ruled = settings.rules != AccessSettings().rules
        """Whether the operator wrote rules."""

    def reread(self) -> None:
        """StartError: the file of tokens cannot be used; those that were read before stay known."""
        self._seen = self._look()
        self._tokens = tokens.read_tokens(self._file)
        self._rights.clear()

    def is_outdated(self) -> bool:
        """Whether the file of tokens is another than when it was read."""
        return self._look() != self._seen

    def _look(self) -> tuple[int, ...]:
        try:
            found = self._file.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    # -- who somebody is, and what follows ---------------------------------------------------------------

    def identify(self, host: str | None, certificate: Mapping[str, Any] | None) -> str:
        """`host` is None where the peer came over a file of this machine, empty where nobody knows."""
        return from_certificate(certificate) or from_address(host, self._networks)

    def identify_dialled(self, host: str | None, certificate: Mapping[str, Any] | None, found: bool) -> str:
        """Of a server that the broker dialled; `found`: because it was announced, not because it is configured.

        Anybody on this machine can open a port and announce it, so a server that was found is never `loopback`.
        """
        identity = self.identify(host, certificate)
        return DIALLED if identity == ANONYMOUS or (found and identity == LOOPBACK) else identity

    def find(self, digest: str) -> Token | None:
        return tokens.find(self._tokens, digest)

    def rights(self, identity: str, dialect: str) -> Rights | None:
        """None: it may do everything."""
        key = identity, dialect
        if key not in self._rights:
            texts = [*self.settings.rules, *(rule for token in self._tokens for rule in token.rules)]
            self._rights[key] = rights_of(map(parse_rule, texts), identity, dialect)
        return self._rights[key]


class ConnectionGuard(Guard):
    """What one connection has shown, and so who it is."""

    def __init__(self, access: AccessControl, identity: str, dialect: str, configured: bool = False) -> None:
        """`configured`: the operator named the peer's address. It may do everything unless there are rules."""
        self._access = access
        self._came_as = identity
        self.configured = configured
        self._digest = ""
        """Of the token that it has shown."""
        self._dialect = dialect
        self._become(identity)

    def _become(self, identity: str) -> None:
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
        """False: the token that it has shown was revoked."""
        if self._digest and self._access.find(self._digest) is None:
            return False
        self._become(self.identity)
        return True

    def authenticate(self, token: str | None) -> bool:
        self._digest = "" if token is None else tokens.digest_of(token)
        found = self._access.find(self._digest) if self._digest else None
        self._become(found.name if found else self._came_as)
        return token is None or found is not None

    def set_dialect(self, dialect: str) -> None:
        self._dialect = dialect
        self._become(self.identity)

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
