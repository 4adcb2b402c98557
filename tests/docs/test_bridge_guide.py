"""The web page of the bridge guide, in a real browser, with a fanout client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kit.broker import Broker
from kit.browser import Browser
from kit.pages import ROOT, blocks
from kit.program import need
from kit.room import Room

GUIDE = ROOT / "docs" / "guides" / "bridge.md"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def site(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_page_subscribes_and_publishes(tmp_path: Path) -> None:
    chromium = need("chromium", "chromium")
    [html] = blocks(GUIDE, "html")
    [line] = [line.strip() for line in GUIDE.read_text().splitlines() if line.startswith("    socket.send(")]
    with site(tmp_path) as place, Broker(f"--set=access.origins={place}") as broker, Room(broker) as room:
        page = tmp_path / "prices.html"
        page.write_text(html.replace("8080", str(broker.ports["http"])))
        old = room.client(b"subscribe prices.>\n")
        with Browser(chromium) as browser, browser.open(f"{place}/prices.html") as seen:
            seen.wait("socket.readyState === 1", "the WebSocket")
            seen.run("socket.send(JSON.stringify({publish: 'prices.fence'}))")
            old.expect(b"prices.fence!\n")  # so its subscriptions are in force
            room.send_as_controller(room.controller(), b"prices.tea 4.20\n")
            old.expect(b"prices.tea!4.20\n")
            seen.wait("document.querySelector('li')?.textContent === 'prices.tea: 4.20'", "the price")
            seen.run(line)
            old.expect(b"prices.tea!sold out\n")
