"""A browser, on a page that the broker serves. The console has tests of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker import Broker
from kit.browser import Browser, Page
from kit.frames import pub
from kit.http import get, read_response
from kit.metrics import read_metrics
from kit.program import need
from kit.room import Room
from kit.wire import Peer

pytestmark = [pytest.mark.interop, pytest.mark.slow]

UBRE = """
    const lines = []
    const socket = new WebSocket(`ws://${location.host}/ubre`)
    const say = words => socket.send(JSON.stringify(words))
    let arrived = () => {}
    socket.onmessage = ({ data }) => {
      const { publish, body, fail } = JSON.parse(data)
      lines.push(fail ? `request ${fail}: ${body}` : `${publish}: ${JSON.stringify(body)}`)
      document.body.innerText = lines.join('\\n')
      arrived()
    }
    const shown = count => new Promise(done => {
      arrived = () => lines.length >= count && done(document.body.innerText)
      arrived()
    })
    new Promise((done, failed) => { socket.onopen = () => done('open'); socket.onerror = () => failed('refused') })
"""
"""Shows what it receives. `shown(3)` comes to what is on the page as soon as three lines are."""

SP = """
    const bodies = []
    const socket = new WebSocket(`ws://${location.host}/`, 'pub.sp.nanomsg.org')
    socket.binaryType = 'arraybuffer'
    let arrived = () => {}
    socket.onmessage = ({ data }) => { bodies.push([...new Uint8Array(data)]); arrived() }
    const received = count => new Promise(done => {
      arrived = () => bodies.length >= count && done(bodies)
      arrived()
    })
    new Promise((done, failed) => { socket.onopen = () => done('open'); socket.onerror = () => failed('refused') })
"""

EVENTS = """
    const messages = [], logs = []
    const events = new EventSource('%s/events?pattern=page.%%3E')
    let arrived = () => {}
    events.onmessage = ({ data, lastEventId }) => { messages.push([+lastEventId, JSON.parse(data)]); arrived() }
    events.addEventListener('log', ({ data }) => { logs.push(JSON.parse(data).log); arrived() })
    const seen = (list, count) => new Promise(done => {
      arrived = () => list.length >= count && done(list)
      arrived()
    })
    const post = async (topic, value) => (await fetch(`%s/topics/${topic}`, {
      method: 'POST', body: JSON.stringify(value), headers: { 'Content-Type': 'application/json' },
    })).json()
    seen(logs, 1)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(need("chromium", "chromium")) as running:
        yield running


@pytest.fixture
def page(browser: Browser, broker: Broker) -> Iterator[Page]:
    with browser.open(f"http://127.0.0.1:{broker.ports['http']}/healthz") as opened:
        yield opened


def subscribe(page: Page, topic: str) -> None:
    """Opens a UBRE connection and subscribes; the response to a request behind it proves that this was handled."""
    assert page.run(UBRE) == "open"
    page.run(f"say({{subscribe: '{topic}'}}), say({{request: 'nobody/answers/this', id: 1}})")
    assert page.run("shown(1)") == "request 1: NotFound"


def test_a_page_shows_messages_of_a_fanout_controller(page: Page, room: Room) -> None:
    subscribe(page, "news")
    room.send_as_controller(
        room.controller(), "news hello, browser\nelsewhere nothing\nnews Zoë says “hi”\n".encode()
    )
    assert page.run("shown(3)") == 'request 1: NotFound\nnews: "hello, browser"\nnews: "Zoë says “hi”"'


def test_a_page_publishes(page: Page, room: Room) -> None:
    client, subscriber = room.client(b"subscribe clicks\n"), room.simplest(b"sub clicks\n")
    subscribe(page, "clicks")
    page.run("say({publish: 'clicks', body: {x: 3, y: 4}})")
    client.expect(b'clicks!{"x":3,"y":4}\n')
    subscriber.expect(pub("clicks", b'{"x":3,"y":4}'))
    assert page.run("shown(2)").endswith('clicks: {"x":3,"y":4}')


def test_a_page_leaves(page: Page, browser: Browser, broker: Broker, room: Room) -> None:
    subscribe(page, "news")
    page.go("about:blank")
    with browser.open(f"http://127.0.0.1:{broker.ports['http']}/healthz") as other:
        subscribe(other, "news")
        room.send_as_controller(room.controller(), b"news still here\n")
        assert other.run("shown(2)").endswith('news: "still here"')


def test_a_page_is_a_nanomsg_sub(page: Page, room: Room) -> None:
    assert page.run(SP) == "open"
    room.simplest(pub("news", bytes(range(256))) + pub("news", b"x" * 70_000))
    first, second = map(bytes, page.run("received(2)"))
    assert first == b"news|" + bytes(range(256))
    assert second == b"news|" + b"x" * 70_000


def test_a_page_of_another_site_follows_patterns_and_resumes(page: Page, broker: Broker, tmp_path: Path) -> None:
    """The page is one of `broker`; the topics are at another one, which lists the site of the page."""
    origin = f"--set=access.origins=http://127.0.0.1:{broker.ports['http']}"
    with (
        Broker(origin, data=tmp_path, listen=("http", "hermod.pub")) as other,
        other.connect("hermod.pub") as peer,
    ):
        site = f"http://127.0.0.1:{other.ports['http']}"
        [log] = page.run(EVENTS % (site, site))
        place = page.run("post('page.1', {x: 'é'})")
        [[offset, message]] = page.run("seen(messages, 1)")
        assert (offset, message["payload"]) == (place["offset"], {"x": "é"})
        [name] = [row["name"] for row in connections(peer) if row["subscriptions"]]
        request_route(peer, "polycast/close", {"name": name})
        page.run("post('page.2', 'while it was away')")
        assert page.run("seen(logs, 2)") == [log, log]
        page.run("post('page.3', 'back')")
        found = [message["topic"] for _, message in page.run("seen(messages, 3)")]
        assert found == ["page.1", "page.2", "page.3"]


def test_a_page_of_a_site_that_is_not_listed_cannot_publish(page: Page) -> None:
    with Broker(listen=("http",)) as other:
        there = f"http://127.0.0.1:{other.ports['http']}/topics/a"
        for request in ("{method: 'POST', body: 'x'}", "{method: 'POST', body: 'x', mode: 'no-cors'}"):
            page.run(f"fetch('{there}', {request}).catch(() => 0).then(() => 0)")
        other.wait_for_log("access.origins")
        with other.connect("http") as peer:
            peer.send(get("/metrics"))
            metrics = read_metrics(read_response(peer).body.decode())
        assert set(metrics["polycast_messages_in_total"].samples.values()) == {0}


def connections(peer: Peer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = request_route(peer, "polycast/connections", {})["connections"]
    return rows


def request_route(peer: Peer, route: str, body: object) -> dict[str, Any]:
    peer.send(json.dumps({"request": route, "id": 1, "body": body}).encode())
    size = json.loads(peer.read_until(b"}"))["payload_size"]
    found: dict[str, Any] = json.loads(peer.read_until(b"\n")[:size])
    return found
