"""The rights of a peer, as sessions see them."""

from __future__ import annotations

from polycast.model import Pattern

SHOWN_CHARACTERS = 120
"""How many characters of a refused value go to the log."""


class Guard:
    """Identity and rights of a peer. This base class knows no identities and allows everything."""

    identity = ""
    known = True
    """Whether the peer has an identity: from a token, a certificate or its address."""
    restricted = False
    """Whether anything is forbidden to the peer; if not, the other checks can be skipped."""
    has_no_rights = False
    may_publish_anything = True
    """Whether there is any topic that the peer may publish to."""
    admin = True
    """Whether the peer may use the broker's own routes and pages."""
    configured = False
    """Whether the broker dialled the peer because the configuration says so."""

    def refresh(self) -> bool:
        """Applies changed rules; false: the peer has lost its identity."""
        return True

    def authenticate(self, token: str | None) -> bool:
        """Whether the token is valid; the peer then has the token's identity. None: no token."""
        return True

    def denial_text(self, to: str, what: str) -> str:
        """For the broker's log; the peer gets a shorter reply."""
        return f"{self.identity} may not {to} {what[:SHOWN_CHARACTERS]!r}"

    def set_dialect(self, dialect: str) -> None:
        """Applies the rules of that dialect from here on."""

    def may_use(self, dialect: str) -> bool:
        """Whether the peer has any right in that dialect."""
        return True

    def may_publish(self, topic: bytes) -> bool:
        return True

    def may_subscribe(self, pattern: Pattern) -> bool:
        return True

    def may_serve(self, route: str) -> bool:
        """Whether the peer may respond to requests for that route."""
        return True

    @property
    def query_patterns(self) -> list[Pattern] | None:
        """The topics that the peer may query with SQL; None: all of them."""
        return None

    def narrow(self, pattern: Pattern) -> list[Pattern]:
        """The part of the pattern that the peer may subscribe to, as far as patterns can express it."""
        return [pattern]

    def allows_host(self, host: str, own: str) -> bool:
        """Whether `host` is a valid `Host` of an HTTP request; `own` is the host of the listener's address."""
        return True

    def allows_origin(self, origin: str, host: str, secure: bool) -> bool:
        """Whether a page of the site `origin` may send requests to `host`, the name that the browser uses."""
        return True
