"""The connection of the console: broker restarts, tokens, brokers without a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from access.gate import gated
from kit.broker import Broker
from kit.browser import Browser
from kit.console import Console
from kit.frames import pub
from kit.room import Room
from kit.wire import wait_for
from polycast.server.access.tokens import add_token

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_the_page_reconnects_to_a_restarted_broker(browser: Browser) -> None:
    with ExitStack() as stack:
        with Broker(listen=("http",)) as broker:
            port = broker.ports["http"]
            console = stack.enter_context(Console(browser, port))
            console.wait_until_live()
        console.wait_for_text("#state", "no connection, next try in")
        console.go("topics")
        again = stack.enter_context(Broker(f"--listen=http=tcp://127.0.0.1:{port}", listen=("simplest",)))
        console.wait_until_live()
        with again.connect("simplest") as peer:
            peer.send(pub("after/the/loss"))
            console.wait_for_row("Topics", "after/the/loss")


def test_without_a_log(browser: Browser, broker: Broker, room: Room) -> None:
    with Console(browser, broker.ports["http"]) as console:
        console.wait_for_text(".tile", "the broker has no log")
        room.simplest(pub("unstored", b"before"))
        console.go("topic/unstored")
        console.wait_for_text(".notice", "This broker has no log")

        def shows_live_messages() -> bool:
            room.simplest(pub("unstored", b"now"))  # again, until the page has subscribed
            return set(console.texts(".messages .payload")) == {"now"}

        wait_for(shows_live_messages, "the live message")


def test_a_topic_without_a_log_cannot_flood_the_page(browser: Browser, broker: Broker, room: Room) -> None:
    with Console(browser, broker.ports["http"]) as console:
        room.simplest(pub("flood"))
        console.go("topic/flood")
        console.wait_for_text(".notice", "This broker has no log")
        console.wait_for_text(".tile", "Subscribers\n1")
        room.simplest(pub("flood", b"x") * 20_000)
        wait_for(lambda: console.texts(".messages .payload"), "some of them")
        console.wait_for_text(".tile", "Sequence\n20,000")
        assert len(console.texts(".messages .payload")) <= 500
        assert console.texts("#state") == ["live"]


def test_a_token_goes_from_the_address_to_the_tab(browser: Browser, broker: Broker) -> None:
    """The broker does not know this token: the page shows the form."""
    with Console(browser, broker.ports["http"], "?token=s%26cret&x=1") as console:
        assert console.value("sessionStorage.getItem('polycast.token')") == "s&cret"
        assert console.value("location.search") == "?x=1"
        console.wait_for_text("#entry", "token")
        console.fill("token", "")
        console.press("Connect")
        console.wait_until_live()
        assert console.texts("#entry") == []


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str, str]]:
    """Peers without a token have no rights; a token with all rights, and one that may subscribe only."""
    folder = tmp_path_factory.mktemp("guarded")
    owner = add_token(folder / "data", "owner", ["owner may everything"])
    reader = add_token(folder / "data", "reader", ["reader may subscribe >"])
    with gated(folder, listen=("http",)) as running:
        yield running, owner, reader


def test_without_a_token_the_page_requests_one(browser: Browser, guarded: tuple[Broker, str, str]) -> None:
    broker, owner, _ = guarded
    with Console(browser, broker.ports["http"]) as console:
        console.wait_for_text("#entry", "This broker may require a token")
        assert console.texts(".tile")[0].split("\n")[1] == "–"
        console.fill("token", owner)
        console.press("Connect")
        console.wait_until_live()
        console.wait_for_row("Traffic by dialect", "ubre", "1")


def test_a_token_without_the_right_to_request(browser: Browser, guarded: tuple[Broker, str, str]) -> None:
    broker, _, reader = guarded
    with Console(browser, broker.ports["http"], f"?token={reader}") as console:
        console.wait_until_live()
        console.wait_for_text("#trouble", "refuses a request of this page: Forbidden")
        assert reader not in console.value("location.href")
        console.go("publish")
        console.fill("topic", "a")
        console.value("document.querySelector('form.card button').click()")
        console.wait_for_text(".notice.bad", "Forbidden")
