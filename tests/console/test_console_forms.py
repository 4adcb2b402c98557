"""Forms, pipelines, SQL and layout of the console in a real browser."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from console.sample_traffic import EVIL
from kit.broker import Broker
from kit.browser import Browser
from kit.console import Console
from kit.frames import pub
from kit.room import Room
from kit.subscribers import send_request
from kit.ubre import UbrePeer
from kit.wire import wait_for

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PAGES = ("", "topics", "topic/deep", "topic/" + quote(EVIL, safe=""), "connections", "publish", "pipelines")


@pytest.fixture(scope="module")
def broker(busy_broker: Broker) -> Broker:
    return busy_broker


def publish(console: Console, topic: str, payload: str, format_: str, dialect: str) -> None:
    for name, value in (("topic", topic), ("payload", payload), ("format", format_), ("dialect", dialect)):
        console.fill(name, value)
    console.value("document.querySelector('form.card button').click()")


def test_publish_from_the_form(console: Console, broker: Broker, room: Room) -> None:
    client, subscriber = room.client(b"subscribe forms\n"), room.simplest(b"sub forms\n")
    console.go("publish")
    published = [
        ("Zoë writes <hi>", "text", "ubre", "Zoë writes <hi>".encode()),
        ('{"a": [1, 2]}', "json", "hermod", b'{"a":[1,2]}'),
        ("00 ff 7A", "bytes", "nanomsg", b"\x00\xffz"),
    ]
    for number, (payload, format_, dialect, delivered) in enumerate(published):
        publish(console, "forms", payload, format_, dialect)
        subscriber.expect(pub("forms", delivered))
        client.expect(b"forms!" + delivered + b"\n")
        console.wait_for_text(".notice", f"Published with sequence {number} ")
    rows = send_request(broker, "polycast/history", {"pattern": "forms"})
    assert [row["dialect"] for row in rows] == ["ubre", "hermod", "nanomsg"]


WRONG = [
    ("t" * 101, "x", "text", "ubre", "The topic has 101 bytes; the limit is 100 (limits.topic_bytes)"),
    ("é" * 51, "x", "text", "ubre", "The topic has 102 bytes; the limit is 100"),
    ("a", "x" * 2001, "text", "ubre", "The payload has 2,001 bytes; the limit is 2,000 (limits.payload_bytes)"),
    ("a", "x" * 100_000, "text", "ubre", "The payload has 100,000 bytes; the limit is 2,000"),
    ("a", "{", "json", "ubre", "That is not JSON"),
    ("a", "0", "bytes", "ubre", "pairs of hex digits"),
    ("a b", "x", "text", "fanout", "a topic of fanout cannot contain ' '"),
]


def test_unpublishable_messages(console: Console, broker: Broker) -> None:
    before = send_request(broker, "polycast/stats")["log_next_offset"]
    console.go("publish")
    console.page.wait("document.getElementById('version').textContent")  # the limits of the broker are known
    for topic, payload, format_, dialect, words in WRONG:
        publish(console, topic, payload, format_, dialect)
        console.wait_for_text(".notice.bad", words)
    assert console.texts("#state") == ["live"]
    assert send_request(broker, "polycast/stats")["log_next_offset"] == before


# -- pipelines and Spark ---------------------------------------------------------------------------------


def test_pipelines_and_the_results_of_traffic(console: Console, broker: Broker) -> None:
    progress = {"query": "archive", "offset": 7, "state": "failed", "error": "no room on <disk>"}
    send_request(broker, "polycast/positions", progress)
    for minute, rate in ((1, 2.5), (2, 4.0)):
        window = f"2026-11-16T10:0{minute}:00.000Z"
        row = {"window": window, "seconds": 60, "topic": "chat", "dialect": "fanout", "messages": 60 * rate}
        body = row | {"messages_per_second": rate, "bytes": 6000}
        send_request(broker, "polycast/publish", {"topic": "polycast/traffic/chat", "body": body})
    console.go("pipelines")
    assert "no room on <disk>" in console.wait_for_row("Pipelines", "archive", "failed")
    console.wait_for_text("figure .legend", "chat")
    assert console.texts("figure .legend b") == ["4", "100 B"]
    assert console.value("document.querySelector('figure polyline').points.length") == 2


def test_sql(console: Console, broker: Broker) -> None:
    console.go("pipelines")
    console.press("Run")
    console.wait_for_text(".notice.bad", "Spark is not running")
    with UbrePeer(broker.ports["ubre"]) as spark:
        spark.send_message(subscribe="spark/sql", body={"serve": True})
        spark.flush()
        console.fill("query", "SELECT <b>")
        console.fill("limit", "2")
        console.press("Run")
        request = json.loads(spark.read_until(b"\n"))
        assert (request["request"], request["body"]["body"]) == ("spark/sql", {"query": "SELECT <b>", "limit": 2})
        rows = [["<b>", 5], [None, 12]]
        spark.send_message(success=request["id"], body={"columns": ["name", "count"], "rows": rows, "more": True})
        console.wait_for_text(".notice", "2 rows, and more exist")
        assert console.texts(".result td") == ["<b>", "5", "null", "12"]
        console.press("Run")
        request = json.loads(spark.read_until(b"\n"))
        spark.send_message(fail=request["id"], body="there is no table <t>")
        console.wait_for_text(".notice.bad", "there is no table <t>")
        console.fill("query", "x" * 70_000)
        console.press("Run")
        console.wait_for_text(".notice.bad", "The query has 70,000 bytes; the limit is 65,536")
        spark.flush()


# -- layout and accessibility ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_in_light_and_dark(console: Console, room: Room, scheme: str) -> None:
    room.simplest(pub("wide/" + "w" * 95, b"x" * 1900))
    console.page.resize(360, 780, mobile=True)
    console.page.prefer(scheme)
    for path in (*PAGES, "topic/wide%2F" + "w" * 95):
        console.go(path)
        console.page.wait(
            "Boolean(document.querySelector('tbody tr, .messages li, form.card'))", f"something on {path}"
        )
        widths = console.value("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1] == 360, path
    ink, paper = (
        sum(map(int, console.value(f"getComputedStyle(document.body).{name}.match(/\\d+/g)")))
        for name in ("color", "backgroundColor")
    )
    assert (ink < 250 < 600 < paper) if scheme == "light" else (paper < 250 < 600 < ink)


def test_keyboard_only(browser: Browser, broker: Broker) -> None:
    with Console(browser, broker.ports["http"]) as console:
        walk(console)


def walk(console: Console) -> None:
    console.page.press("Tab", 9)
    assert console.value("document.activeElement.className") == "skip"
    console.value("document.activeElement.click()")
    assert console.value("document.activeElement.id") == "main"
    current = "[...document.querySelectorAll('nav [aria-current=page]')].map(each => each.innerText)"
    assert console.value(current) == ["Overview"]
    for path, name in (("topics", "Topics"), ("topic/chat", "Topics"), ("publish", "Publish")):
        console.go(path)
        wait_for(lambda name=name: console.value(current) == [name], name)  # type: ignore[misc]
    unnamed = console.value(
        "[...document.querySelectorAll('input, select, textarea')].filter(each => !each.labels.length).length"
    )
    assert unnamed == 0
    console.value("document.getElementById('topic').focus()")
    console.page.press("Tab", 9)
    assert console.value("document.activeElement.id") == "payload"
    assert console.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_an_unknown_page(console: Console) -> None:
    console.value("location.hash = '#/constructor'")
    console.wait_for_text(".empty", "There is no such page")
