"""The files of the console, as the broker serves them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from access.gate import gated
from kit.http import Response, get, read_response
from kit.room import Room
from kit.websocket import upgrade
from polycast.console import pages

TYPES = {
    "": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PATHS = sorted(pages())


def fetch(room: Room, path: str) -> Response:
    peer = room.connect("http")
    peer.send(get(path))
    return read_response(peer)


class Document(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def document() -> Document:
    return Document(pages()["/"].body.decode())


def test_security_headers(room: Room) -> None:
    for path in PATHS:
        response = fetch(room, path)
        assert (response.status, response.headers["content-type"]) == (200, TYPES[path.partition(".")[2]]), path
        assert response.body == pages()[path].body
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"
        policy = response.headers["content-security-policy"].split("; ")
        required = {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"}
        assert required <= set(policy)
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in str(policy) and "*" not in str(policy)


def test_resources_of_a_page_are_served_by_the_broker(document: Document) -> None:
    loaded = [
        attrs.get("src") or attrs.get("href") for tag, attrs in document.tags if tag in ("script", "link", "img")
    ]
    assert loaded and {f"/{path}" for path in loaded} <= set(PATHS)


def test_imports_of_a_module_are_served_by_the_broker() -> None:
    for path in (path for path in PATHS if path.endswith(".js")):
        text = pages()[path].body.decode()
        names = re.findall(r"from '\./([a-z]+\.js)'", text)
        assert len(names) == len(re.findall(r"^import ", text, re.MULTILINE)), path
        assert {f"/console/{name}" for name in names} <= set(PATHS), path


def test_nothing_is_loaded_from_other_sites_and_no_text_becomes_html() -> None:
    forbidden = r"https?://|@import|url\(.?https?:|innerHTML|outerHTML|insertAdjacent|document\.write|eval\("
    for path in PATHS:
        text = pages()[path].body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(forbidden, text), path


def test_the_page_has_no_inline_script_or_style(document: Document) -> None:
    assert not [tag for tag, attrs in document.tags if tag == "style" or (tag == "script" and "src" not in attrs)]
    assert not [name for _, attrs in document.tags for name in attrs if name.startswith("on") or name == "style"]


def test_a_reader_of_the_page_finds_its_way(document: Document) -> None:
    tags = [tag for tag, _ in document.tags]
    assert {"header", "nav", "main", "noscript"} <= set(tags)
    assert next(attrs for tag, attrs in document.tags if tag == "html")["lang"] == "en"
    assert next(attrs["href"] for tag, attrs in document.tags if tag == "a") == "#main"


def test_unknown_paths_are_refused(room: Room) -> None:
    for path in ("/console/", "/console/nothing.js", "/console/../__init__.py", "/console/__init__.py"):
        assert fetch(room, path).status == 404, path


def test_the_brokers_own_pages_stay(room: Room) -> None:
    assert fetch(room, "/healthz").body == b"ok\n"
    assert fetch(room, "/metrics").body.startswith(b"# HELP polycast_")


def test_peers_without_rights_see_the_static_files_only(tmp_path: Path) -> None:
    """The page with the form for a token needs no token."""
    with gated(tmp_path, listen=("http",)) as broker, broker.connect("http") as peer:
        seen = []
        for path in ("/", "/?token=wrong", "/console/app.js", "/metrics", "/console/"):
            peer.send(get(path))
            seen.append(read_response(peer).status)
        assert seen == [200, 200, 200, 403, 403]
        peer.send(upgrade("/"))
        assert read_response(peer).status == 400  # not a WebSocket endpoint
        peer.send(upgrade("/ubre"))
        assert read_response(peer).status == 403
