"""Overview, topics and connections of the console in a real browser."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from console.sample_traffic import EVIL, MARKUP
from kit.broker import Broker
from kit.console import Console
from kit.frames import pub
from kit.room import Room
from kit.subscribers import send_request
from kit.wire import wait_for

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(busy_broker: Broker) -> Broker:
    return busy_broker


def test_the_overview(console: Console, broker: Broker) -> None:
    table = "Traffic by dialect"
    for dialect, messages in (("simplest", 121), ("fanout", 2), ("hermod", 1), ("nanomsg", 1)):
        row = console.wait_for_row(table, dialect)
        assert int(row[3].replace(",", "")) >= messages
    tiles = dict(text.split("\n")[:2] for text in console.texts(".tile"))
    assert int(tiles["Connections"]) >= 1 and int(tiles["Topics"]) >= 6
    console.wait_for_text(".tile", " MiB")  # the log has files
    console.wait_for_text(".tile", " messages")
    listeners = console.rows("Listeners")
    assert {name: cells[0] for name, cells in listeners.items()} == dict(broker.addresses)
    assert "No pipeline has reported" in console.wait_for_text(".empty", "pipeline")
    lines = "[...document.querySelectorAll('polyline')]"
    console.page.wait(f"{lines}.length === 10 && {lines}.every(line => line.points.length > 1)")


def test_the_chart_moves_and_has_both_units(console: Console, room: Room) -> None:
    console.page.wait("document.querySelectorAll('polyline')[0]?.points.length > 0")
    publisher = room.simplest()
    highest = "Math.min(...[...document.querySelector('figure polyline.s0').points].map(point => point.y)) < 100"

    def seen() -> bool:
        room.send_commands(publisher, pub("pulse") * 50)
        return bool(console.value(highest))

    wait_for(seen, "a peak in the chart")
    console.press("Bytes")
    console.wait_for_text("figure .legend", " B")
    assert "bytes in per second" in console.value("document.querySelector('figure svg').ariaLabel")


def test_topics(console: Console, broker: Broker) -> None:
    console.go("topics")
    row = console.wait_for_row("Topics", "deep")
    assert (row[2], row[3]) == ("119", "0")
    assert row[1] == "now" or row[1].endswith(" ago")
    assert "deep" in console.rows("Topics")
    console.fill("search", "CHA")
    wait_for(lambda: list(console.rows("Topics")) == ["chat"], "the matching topic")
    assert "1 of " in console.wait_for_text("main .soft", "CHA")
    console.fill("search", "no such topic")
    console.wait_for_text(".empty", "No topic contains")
    assert console.value("location.hash") == "#/topics?search=no%20such%20topic"


def test_table_headers_sort(console: Console) -> None:
    console.go("topics")
    console.wait_for_row("Topics", "deep")
    console.press("Sequence")
    wait_for(lambda: next(iter(console.rows("Topics"))) in ("deep", "pulse"), "the highest sequence first")
    heads = "[...document.querySelectorAll('th')].map(head => head.ariaSort)"
    assert console.value(heads) == [None, None, None, "descending", None]


def test_a_topic_is_followed(console: Console, room: Room) -> None:
    console.go("topic/followed")
    console.wait_for_text(".empty", "No message on this topic yet")
    room.simplest(pub("followed", b"one") + pub("followed", b"two"))
    wait_for(lambda: console.texts(".messages .payload") == ["two", "one"], "both, the newest first")
    assert console.texts(".messages .meta span:first-child") == ["#1", "#0"]
    assert "simplest" in console.texts(".messages .meta")[0]
    console.press("Following")
    room.simplest(pub("followed", b"three"))
    console.wait_for_text(".tile", "Sequence\n2")
    assert len(console.texts(".messages .payload")) == 2
    console.press("Paused")
    wait_for(lambda: console.texts(".messages .payload") == ["three", "two", "one"], "the message of the pause")


def test_back_through_the_log(console: Console) -> None:
    console.go("topic/deep")
    wait_for(lambda: len(console.texts(".messages .payload")) == 50, "the last ones")
    console.press("Earlier messages")
    wait_for(lambda: len(console.texts(".messages .payload")) == 100, "those before them")
    console.press("Earlier messages")
    wait_for(lambda: len(console.texts(".messages .payload")) == 120, "all of them")
    assert console.texts(".messages .payload") == [str(number) for number in reversed(range(120))]
    wait_for(lambda: "Earlier messages" not in console.texts("button"), "nothing before the first one")


def test_a_topic_that_is_too_fast_is_shown_in_part(console: Console, room: Room) -> None:
    console.go("topic/fast")
    room.simplest(pub("fast", b"first"))
    wait_for(lambda: console.texts(".messages .payload") == ["first"], "the first one")
    room.simplest(b"".join(pub("fast", b"%d" % i) for i in range(1, 5001)))
    wait_for(lambda: console.texts(".messages .payload")[:1] == ["5000"], "the last one")
    assert "too fast for this page" in console.texts(".gap")[0]
    assert len(console.texts(".messages .payload")) < 500


def test_payloads_as_text_json_and_hex(console: Console) -> None:
    console.go("topic/orders")
    folded = console.wait_for_text(".messages summary", '{"n":1')
    assert "<i>tea</i>" in folded
    assert console.texts(".messages .key") == []
    console.value("document.querySelector('.messages summary').click()")
    wait_for(lambda: console.texts(".messages .key") == ["n", "lines"], "its members")
    console.press("Text")
    assert console.texts(".messages pre") == ['{"n": 1, "lines": [{"item": "<i>tea</i>"}]}']
    console.press("Hex")
    assert console.texts(".messages pre")[0].startswith("000000  7b 22 6e 22 3a 20 31 2c")
    console.go("topic/temp")
    assert "00 ff 10 21" in console.wait_for_text(".messages pre", "000000")
    console.go("topic/chat")
    wait_for(lambda: console.texts(".messages pre") == ["hello again", "hello"], "plain text")
    console.press("JSON")
    assert console.texts(".messages .payload") == ["not JSON", "not JSON"]


def test_names_and_payloads_with_markup_are_text(console: Console) -> None:
    console.go("topics")
    console.wait_for_row("Topics", EVIL)
    console.press(EVIL)
    assert console.wait_for_text("h1", "script") == EVIL
    console.wait_for_text(".messages pre", MARKUP)
    assert console.value("location.hash") == "#/topic/" + quote(EVIL, safe="()")
    assert console.value("document.querySelectorAll('main script, main img, main b').length") == 0
    refused = "try { document.querySelector('main').innerHTML = '<b>x</b>' } catch (error) { error.name }"
    assert console.value(refused) == "TypeError"
    assert console.value("faults.splice(0)") == [
        "securitypolicyviolation: require-trusted-types-for trusted-types-sink"
    ]


def test_connections_are_listed_and_closed(console: Console, broker: Broker, room: Room) -> None:
    client = room.client(b"subscribe chat.>\n")
    address = f"127.0.0.1:{client.socket.getsockname()[1]}"
    [name] = [
        row["name"]
        for row in send_request(broker, "polycast/connections")["connections"]
        if row["address"] == address
    ]
    console.go("connections")
    row = console.wait_for_row("Connections", name, "fanout", "fanout.client", address, "open")
    assert row[4] == "all, chat.>"
    console.press(f"Close {name}")
    assert address in console.wait_for_text("dialog[open]", name)
    console.press("Cancel")
    assert console.texts("dialog[open]") == []
    room.send_as_client(client)
    console.press(f"Close {name}")
    console.press("Close connection")
    assert client.expect_closed() == b""
    console.wait_for_text(".notice", f"closes connection {name}")
    wait_for(lambda: name not in console.rows("Connections"), "one row less")
