"""The console: what goes on in a broker, in a browser.

Files of HTML, CSS and ES modules, served as they are; there is no build step and no code of others. All that is
shown comes over the WebSocket at `/ubre`, by the routes that anybody may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from polycast.dialects.session import Page

FRONT = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing from elsewhere, nothing inline, and no text that is taken for HTML: a browser refuses to."""
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def pages() -> Mapping[str, Page]:
    """By path. They hold no data, so whoever may not ask the broker anything may see them nevertheless."""
    found = {f"/console/{file.name}": _to_page(file) for file in (files(__name__) / "static").iterdir()}
    return {"/": found.pop(f"/console/{FRONT}"), **found}


def _to_page(file: Traversable) -> Page:
    return Page(file.read_bytes(), TYPES[file.name.rpartition(".")[2]], headers=HEADERS)
