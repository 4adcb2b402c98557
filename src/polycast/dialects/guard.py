"""The rights of a peer, as a session sees them."""

from __future__ import annotations

from polycast.model import Pattern

SHOWN_CHARACTERS = 120
"""How many characters of a refused value go to the log."""


class Guard:
    """Who a peer is, and what it may do. This one knows nobody, and lets everybody do everything."""

    identity = ""
    known = True
    """Whether the peer has shown who it is, or came from where that is known."""
    restricted = False
    """Whether anything is forbidden to it; where that is false nothing else need be asked."""
    has_no_rights = False
    """Whether it may do nothing at all."""
    publishes = True
    """Whether there is any topic that it may publish to."""
    admin = True
    """Whether it may look at the broker, and change what it does."""
    configured = False
    """Whether the broker connected to it because the configuration says so."""

    def renew(self) -> bool:
        """After what is allowed has changed; false: the peer is nobody any more."""
        return True

    def show(self, token: str | None) -> bool:
        """Whether that is a token, and the peer from here on whom it belongs to; None: it shows none."""
        return True

    def denial_text(self, to: str, what: str) -> str:
        """For those who read the log; the peer itself is told less."""
        return f"{self.identity} may not {to} {what[:SHOWN_CHARACTERS]!r}"

    def speak(self, dialect: str) -> None:
        """What it may do is what it may do in that dialect, from here on."""

    def may_publish(self, topic: bytes) -> bool:
        return True

    def may_subscribe(self, pattern: Pattern) -> bool:
        return True

    def may_serve(self, route: str) -> bool:
        """Whether it may respond to requests for that route."""
        return True

    @property
    def queries(self) -> list[Pattern] | None:
        """The topics that it may query with SQL; None: all of them."""
        return None

    def within(self, pattern: Pattern) -> list[Pattern]:
        """What of it the peer may hear, as far as that can be said in patterns."""
        return [pattern]

    def allows_host(self, host: str, own: str) -> bool:
        """Whether an HTTP request may call the broker `host`; `own` is the host in the listener's address."""
        return True

    def allows_origin(self, origin: str, host: str, secure: bool) -> bool:
        """Whether a page that came from `origin` may ask for anything at `host`, as the browser calls it."""
        return True
