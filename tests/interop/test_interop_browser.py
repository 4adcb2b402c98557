"""A browser, on a page that the broker serves. The console has tests of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.broker import Broker
from kit.browser import Browser, Page
from kit.frames import pub
from kit.program import need
from kit.room import Room

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
    const heard = count => new Promise(done => {
      arrived = () => bodies.length >= count && done(bodies)
      arrived()
    })
    new Promise((done, failed) => { socket.onopen = () => done('open'); socket.onerror = () => failed('refused') })
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
    """Opens a UBRE connection and subscribes; the answer to a request behind it tells that this was handled."""
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
    first, second = map(bytes, page.run("heard(2)"))
    assert first == b"news|" + bytes(range(256))
    assert second == b"news|" + b"x" * 70_000
