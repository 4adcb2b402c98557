"""The console: a broker in the browser.

Static HTML, CSS and ES modules, without a build step and without third-party code. All data comes over the
WebSocket at `/ubre`, from the broker's public routes.
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
"""Nothing from other sites, nothing inline, and no text that becomes HTML."""
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def pages() -> Mapping[str, Page]:
    """By path. The files hold no data, and need no rights."""
    found = {f"/console/{file.name}": _to_page(file) for file in (files(__name__) / "static").iterdir()}
    return {"/": found.pop(f"/console/{FRONT}"), **found}


def _to_page(file: Traversable) -> Page:
    return Page(file.read_bytes(), TYPES[file.name.rpartition(".")[2]], headers=HEADERS)
