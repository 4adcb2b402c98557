"""Host and Origin of a request: the broker's names, and the sites that may call it (CORS)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polycast.dialects.guard import SHOWN_CHARACTERS, Guard
from polycast.dialects.session import Page, SessionContext
from polycast.dialects.web.handshake import words_of

Headers = Sequence[tuple[bytes, bytes]]

FORBIDDEN = Page(b"Forbidden\n", status=403)
MISDIRECTED = Page(b"Misdirected Request: the broker has another name; access.hosts adds one\n", status=421)
OTHER_SITES = ("cross-site", "same-site")
"""Values of `Sec-Fetch-Site` for a page of another origin than the broker."""
SAFE_METHODS = (b"GET", b"HEAD", b"OPTIONS")
ALLOWED_HEADERS = "Authorization, Content-Type, Last-Event-ID"
PREFLIGHT_SECONDS = 600
"""How long a browser may remember the response to a preflight request."""


def refuse_origin(
    method: bytes, headers: Headers, authority: str, context: SessionContext, guard: Guard, probe: bool
) -> Page | None:
    """The refusal of a request under a wrong host name, or from a page of another site.

    `authority` is the host in the request line, if there is one. A client that names no host is no browser. A
    health probe may use any name: its page is public.
    """
    hosts = [host for host in (*_values(headers, b"host"), authority) if host]
    for host in hosts:
        if not probe and not guard.allows_host(host, context.host):
            detail = f"Host {_shown(host)} is not a name of the broker; add it to access.hosts to accept it"
            return replace(MISDIRECTED, detail=detail)
    origin, host = _origin(headers, method in SAFE_METHODS), hosts[0] if hosts else ""
    if origin is None or guard.allows_origin(origin, host, context.secure):
        return None
    site = f"Origin {_shown(origin)}" if origin else "a page, with no Origin,"
    detail = f"{site} is another site than Host {_shown(host)}; add the site to access.origins to accept it"
    return replace(FORBIDDEN, detail=detail)


def _origin(headers: Headers, safe: bool) -> str | None:
    """The site of the page that made the request; empty: an unnamed other site, None: the same site, or no page.

    Browsers send `Origin` wherever a page could change or read something, but not for images and the like. A link
    on a page of another site may lead here; a form of such a page may not.
    """
    if origins := _values(headers, b"origin"):
        return ", ".join(origins)
    site, mode = words_of(headers, b"sec-fetch-site"), words_of(headers, b"sec-fetch-mode")
    may_lead_here = safe and mode == ["navigate"]
    return "" if not may_lead_here and not set(site).isdisjoint(OTHER_SITES) else None


def to_cors(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Headers of every response to a request that `refuse_origin` accepted: its page may read the response."""
    origins = _values(headers, b"origin")
    return (("Access-Control-Allow-Origin", origins[0]), ("Vary", "Origin")) if len(origins) == 1 else ()


def to_options(headers: Headers, methods: str) -> Page:
    """The response to OPTIONS, a preflight request of a browser or not."""
    preflight = (
        ("Access-Control-Allow-Methods", methods),
        ("Access-Control-Allow-Headers", ALLOWED_HEADERS),
        ("Access-Control-Max-Age", str(PREFLIGHT_SECONDS)),
    )
    preflight_method = words_of(headers, b"access-control-request-method")
    return Page(b"", status=204, headers=(("Allow", methods), *(preflight if preflight_method else ())))


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _shown(text: str) -> str:
    return repr(text[:SHOWN_CHARACTERS])
