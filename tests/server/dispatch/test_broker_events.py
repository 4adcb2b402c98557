"""Events of the broker: connect, disconnect, subscribe, unsubscribe, dropped messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from kit import hermod, nanomsg
from kit.broker import Broker
from kit.flow import MIB, Reading
from kit.frames import pub
from kit.http import get, read_response
from kit.replay import Delivered, metrics, publish, read_messages, subscribe, total
from kit.room import Room
from kit.slow import QUEUE_BYTES, numbered, publish_until
from kit.subscribers import LISTEN, send_request, wait_until_subscribed
from kit.ubre import UbrePeer, text
from kit.websocket import WebSocket
from kit.wire import Peer, wait_for
from polycast.log.files.folder import log_folder
from polycast.log.read.reader import Reader
from polycast.model import parse_pattern
from polycast.server.core import Core
from polycast.server.dispatch import broker_events
from polycast.server.settings import Settings

EVENTS = "polycast/events/"


class Row(NamedTuple):
    offset: int
    kind: str
    """The topic without `polycast/events/`."""
    output: dict[str, Any]
    source: str


def rows(data: Path) -> list[Row]:
    """All events in the log."""
    reader, found = Reader(log_folder(str(data)), 0), []
    while batch := reader.read():
        for row in batch.to_pylist():
            kind, event = row["topic"].removeprefix(EVENTS), row["topic"].startswith(EVENTS)
            if event:
                assert (row["source"], row["dialect"], row["format"]) == ("polycast", "polycast", "json")
            output = json.loads(row["payload"]) if event else {"payload": row["payload"]}
            found.append(Row(row["offset"], kind, output, row["source"]))
    reader.close()
    return found


def of(found: list[Row], name: str, *kinds: str) -> list[Row]:
    return [row for row in found if row.output.get("connection") == name and (not kinds or row.kind in kinds)]


def events_on(broker: Broker) -> Peer:
    return subscribe(broker, patterns=[EVENTS + ">"])


def receive_event(peer: Peer, kind: str) -> dict[str, Any]:
    """The next event of this kind."""
    while True:
        [received] = read_messages(peer, 1)
        if received.topic == EVENTS + kind:
            return dict(json.loads(received.payload))


# -- one connection --------------------------------------------------------------------------------------


def test_a_life_in_the_log(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN, events=True) as broker:
        with broker.connect("simplest") as subscriber, broker.connect("hermod.pub") as publisher:
            publish(publisher, [("before", b"0")])
            subscriber.send(b"sub or\nsub or\n")
            wait_until_subscribed(broker, subscriber)
            publish(publisher, [("orders", b"1")])
            subscriber.expect(pub("orders", b"1"))
            subscriber.send(b"unsub or\nunsub or\n")
            wait_until_subscribed(broker, subscriber, 0)
            publish(publisher, [("orders", b"2")])
            port = subscriber.socket.getsockname()[1]
        wait_for(lambda: len(send_request(broker, "polycast/connections")["connections"]) == 1, "the end of both")
    found = rows(tmp_path)
    assert [row.offset for row in found] == list(range(len(found)))
    name = next(row.output["connection"] for row in found if row.output.get("address") == f"127.0.0.1:{port}")
    about = {"dialect": "simplest", "listener": "simplest", "address": f"127.0.0.1:{port}"}
    pattern = {"pattern": "~or", "kind": "contains", "value": "or", "echo": False}
    reported = [(row.kind, row.output) for row in of(found, name)]
    assert reported == [
        ("connect", {"connection": name} | about),
        ("subscribe", {"connection": name} | about | pattern),
        ("unsubscribe", {"connection": name} | about | pattern),
        ("disconnect", {"connection": name} | about | {"reason": "left", "detail": ""}),
    ]
    places = {row.kind: row.offset for row in of(found, name)}
    [before] = [row for row in found if row.kind == "before"]
    first, second = [row for row in found if row.kind == "orders"]
    assert places["connect"] < places["subscribe"]
    assert before.offset < places["subscribe"] < first.offset < places["unsubscribe"] < second.offset
    [sender] = {row.source for row in (before, first, second)}
    assert [row.kind for row in of(found, sender)] == ["connect", "disconnect"]


def test_start_and_stop_are_the_first_and_the_last(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(data=tmp_path, events=True) as broker, broker.connect("hermod.pub") as publisher:
            publish(publisher, [("t", b"x")])
            broker.stop()
    found = [row for row in rows(tmp_path) if row.kind in ("start", "stop", "t")]
    assert [row.kind for row in found] == ["start", "t", "stop"] * 2
    nodes = [row.output["node"] for row in found if row.kind in ("start", "stop")]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    assert set(found[0].output) == {"version", "node"}


def test_a_start_after_a_crash(tmp_path: Path) -> None:
    with Broker(data=tmp_path, events=True) as broker, subscribe(broker, "t"):
        with broker.connect("hermod.pub") as publisher:
            publish(publisher, [("t", b"x")])
        broker.kill()
    with Broker(data=tmp_path, events=True):
        pass
    kinds = [row.kind for row in rows(tmp_path) if row.kind not in ("connect", "disconnect")]
    assert kinds == ["start", "subscribe", "t", "start", "stop"]


def test_a_subscription_and_a_message_in_one_read(tmp_path: Path) -> None:
    """Events of one read are in the order of the log."""
    frames = [
        hermod.message("t", b"0") + hermod.topics("t") + hermod.message("t", b"1") + hermod.topics("u", "t"),
        hermod.message("u", b"2"),
    ]
    with Broker(data=tmp_path, events=True) as broker, broker.connect("hermod.pub") as peer:
        peer.send(b"".join(frames))
        wait_for(lambda: total(broker, "log_durable_offset") >= 7, "all of it to be durable")
    found = [row for row in rows(tmp_path) if row.kind in ("t", "u", "subscribe")]
    reported = [row.output.get("value", row.output.get("payload")) for row in found]
    assert reported == [b"0", "t", b"1", "u", b"2"]


@pytest.mark.parametrize(
    ("listener", "output", "patterns"),
    [
        ("fanout.client", b"subscribe x\n", {("all", "exact", "all"), ("x", "exact", "x")}),
        ("nanomsg.pub", nanomsg.SUB, {(">", "everything", "")}),
        ("simplest", b"sub a>\n", {("~a>", "contains", "a>")}),
        ("hermod.sub", hermod.topics("~a", patterns=["^=b>"]), {("=~a", "exact", "~a"), ("^=b>", "prefix", "=b")}),
    ],
)
def test_patterns_in_their_one_form(
    listener: str, output: bytes, patterns: set[tuple[str, str, str]], tmp_path: Path
) -> None:
    with Broker(data=tmp_path, listen=LISTEN, events=True) as broker, broker.connect(listener) as peer:
        peer.send(output)
        wait_until_subscribed(broker, peer, len(patterns))
    found = rows(tmp_path)
    reported = [row.output for row in of(found, name_of_port(found, listener), "subscribe")]
    assert {(each["pattern"], each["kind"], each["value"]) for each in reported} == patterns
    for each in reported:
        pattern = parse_pattern(each["pattern"])
        assert (type(pattern).__name__.lower(), pattern.value) == (each["kind"], each["value"])


def name_of_port(found: list[Row], listener: str) -> str:
    [name] = [
        row.output["connection"] for row in found if row.kind == "connect" and row.output["listener"] == listener
    ]
    return str(name)


def test_subscriptions_that_begin_with_a_replay(tmp_path: Path) -> None:
    with Broker(data=tmp_path, events=True) as broker, broker.connect("hermod.pub") as publisher:
        publish(publisher, [("t", b"0"), ("t", b"1")])
        starts: list[object] = ["earliest", {"topics": {"t": 1}}, {"time": 86_400_000}]
        for start in starts:
            with subscribe(broker, "t", since=start) as peer:
                read_messages(peer, 1)
        with subscribe(broker, "t", since="latest"):
            pass
    found = [row.output for row in rows(tmp_path) if row.kind == "subscribe"]
    assert [each.get("from") for each in found] == [*starts, None]


# -- subscribers -----------------------------------------------------------------------------------------


def test_subscribers_get_events_without_a_log() -> None:
    with Broker(listen=LISTEN, events=True) as broker, events_on(broker) as watcher:
        with UbrePeer(broker.ports["ubre"]) as peer:
            peer.send_message(subscribe="a")
            assert receive_event(watcher, "connect")["listener"] == "ubre"
            assert receive_event(watcher, "subscribe")["value"] == "a"
            peer.send_message(unsubscribe="a")
            assert receive_event(watcher, "unsubscribe")["value"] == "a"
            peer.send(b"{\n{\n")
            peer.flush()
        refused = receive_event(watcher, "refuse")
        assert (refused["reason"], refused["count"]) == ("malformed JSON", 2)
        assert receive_event(watcher, "disconnect")["reason"] == "left"


def test_a_subscriber_gets_only_events_after_its_subscription(tmp_path: Path) -> None:
    with Broker(data=tmp_path, events=True) as broker, events_on(broker) as watcher:
        with broker.connect("simplest") as other:
            other.send(b"sub a\n")
            received = read_messages(watcher, 2)
        received += read_messages(watcher, 1)
        watcher.send(hermod.CLOSE)
        assert watcher.expect_closed() == b""
    found = rows(tmp_path)
    [begin] = [row for row in found if row.kind == "subscribe" and row.output["value"] == EVENTS]
    expected = [row for row in found if row.offset > begin.offset][:3]
    assert [row.kind for row in expected] == ["connect", "subscribe", "disconnect"]
    assert [(each.topic, json.loads(each.payload)) for each in received] == [
        (EVENTS + row.kind, row.output) for row in expected
    ]


def test_a_subscription_to_everything_does_not_include_events() -> None:
    with Broker(listen=LISTEN, events=True) as broker, subscribe(broker, patterns=[">"]) as peer:
        with broker.connect("simplest") as other:
            other.send(b"sub x\n" + pub("t", b"x"))
        assert read_messages(peer, 1) == [Delivered("t", 0, b"x")]


def test_pages_are_not_worth_a_message_but_sockets_are(tmp_path: Path) -> None:
    with Broker(data=tmp_path, listen=LISTEN, events=True) as broker:
        with broker.connect("http") as peer:
            peer.send(get("/healthz"))
            assert read_response(peer).body == b"ok\n"
        with WebSocket(broker.ports["http"]) as socket:
            socket.send_text(text(subscribe="a"))
            socket.flush()
    found = [row for row in rows(tmp_path) if row.output.get("listener") == "http" and row.kind != "disconnect"]
    assert [(row.kind, row.output["dialect"]) for row in found] == [("connect", "ubre"), ("subscribe", "ubre")]


def test_events_can_be_disabled(tmp_path: Path) -> None:
    with Broker("--set=events.enabled=false", data=tmp_path, events=True) as broker, subscribe(broker, "t"):
        with broker.connect("hermod.pub") as publisher:
            publish(publisher, [("t", b"x")])
        assert total(broker, "log_next_offset") == 1
    assert [row.kind for row in rows(tmp_path)] == ["t"]


# -- rates and limits ------------------------------------------------------------------------------------


def test_many_subscriptions_are_few_bursts(tmp_path: Path) -> None:
    count, at_once = 30_000, 1000
    with Broker(data=tmp_path, events=True) as broker, broker.connect("hermod.sub") as peer:
        acks = Reading(peer, len(hermod.OK) * count // at_once)
        for begin in range(0, count, at_once):
            peer.send(hermod.topics(*(f"{n:06d}" for n in range(begin, begin + at_once))))
        acks.finish()
        wait_for(lambda: total(broker, "log_durable_offset") >= count, "all events to be durable")
        assert total(broker, "log_groups_total") < count / at_once + 10
    found = [row.output["value"] for row in rows(tmp_path) if row.kind == "subscribe"]
    assert found == [f"{n:06d}" for n in range(count)]


def test_drops_are_summed_up_exactly(tmp_path: Path) -> None:
    limits = f"--set=limits.queue_bytes={QUEUE_BYTES}"
    with Broker(limits, options="?policy=drop", data=tmp_path, events=True) as broker:
        watcher = events_on(broker)
        with Room(broker) as room, watcher:
            slow = room.simplest(b"sub flow\n", receive_bytes=4096)
            witness, publisher = room.simplest(b"sub flow\n"), room.simplest()
            publish_until(lambda: "dropping" in broker.log(), room, publisher, witness)
            for number in range(9):
                room.send_commands(publisher, numbered(number))
                witness.expect(numbered(number))
            first = receive_event(watcher, "drop")
            dropped = 10 if first["count"] == 10 else first["count"] + receive_event(watcher, "drop")["count"]
            assert dropped == 10 and first["listener"] == "simplest"
            assert first["bytes"] == first["count"] * len(numbered(0))
            slow.close()
            assert receive_event(watcher, "disconnect")["connection"] == first["connection"]
    flow = {row.offset: row for row in rows(tmp_path) if row.kind == "flow"}
    inside = [offset for offset in flow if first["first"] <= offset < first["next"]]
    assert len(inside) == first["count"]


def test_a_subscriber_that_does_not_read_causes_no_more_events(tmp_path: Path) -> None:
    """Dropped events cause no further events; the next other event contains the count of dropped messages."""
    limits = f"--set=limits.queue_bytes={MIB}"
    with Broker(limits, options="?policy=drop", data=tmp_path, events=True) as broker:
        with broker.connect("hermod.sub", 4096) as idle:
            idle.send(hermod.topics(patterns=[EVENTS + ">"]))
            idle.expect(hermod.OK)
            names = [b"%d" % n * 300 for n in range(100, 400)]
            with broker.connect("simplest") as chatty:
                while "dropping" not in broker.log():
                    chatty.send(b"".join(b"sub %b\nunsub %b\n" % (name, name) for name in names))
            port = idle.socket.getsockname()[1]
        wait_for(lambda: f":{port}" in str([row for row in rows(tmp_path) if row.kind == "disconnect"]), "its end")
        dropped = int(sum(metrics(broker)["polycast_messages_dropped_total"].values()))
    found = rows(tmp_path)
    reported = [row.output for row in found if row.kind == "drop"]
    assert sum(each["count"] for each in reported) == dropped
    assert len(reported) == 1


def test_refusals_are_summed_up(tmp_path: Path) -> None:
    with Broker(data=tmp_path, events=True) as broker, broker.connect("hermod.pub") as publisher:
        publisher.send(hermod.message("t", b"x", "0" * 40) * 500)
        for _ in range(500):
            hermod.expect_error(publisher, 422)
    reported = [row.output for row in rows(tmp_path) if row.kind == "refuse"]
    assert sum(each["count"] for each in reported) == 500
    assert {each["reason"] for each in reported} == {"checksum does not fit"} and len(reported) < 5


def test_why_the_broker_closed(tmp_path: Path) -> None:
    with Broker(data=tmp_path, events=True) as broker, broker.connect("hermod.pub") as peer:
        peer.send(b"nonsense")
        hermod.expect_error(peer, 400)
        peer.close()
        wait_for(lambda: "disconnect" in [row.kind for row in rows(tmp_path)], "its end in the log")
    [ended] = [row.output for row in rows(tmp_path) if row.kind == "disconnect"]
    assert ended["reason"] == "protocol" and "a header begins with" in ended["detail"]


def test_dropped_events_cause_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_events, "COUNT_SECONDS", 0.0)
    reported: list[str] = []

    async def live() -> None:
        core = Core(Settings(), "node", None)
        publish = lambda burst, now: reported.extend(map(bytes.decode, burst.topics))  # noqa: E731
        monkeypatch.setattr(core.publisher, "publish_own", publish)
        role = SimpleNamespace(dialect="simplest", listener="simplest")
        listener, session = SimpleNamespace(role=role), SimpleNamespace(carries_messages=True)
        slow: Any = Mock(listener=listener, session=session, subscriber=SimpleNamespace(committed=False))
        slow.name = "#1 somewhere"
        monkeypatch.setattr(core.outbox, "flush", lambda: core.events.drop(slow, 1, 100))
        core.events.start("node")
        core.events.connect(slow)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert reported == [EVENTS + "start", EVENTS + "connect"]
        core.events.refuse(slow, "reason", 1)
        while len(reported) < 4:
            await asyncio.sleep(0.001)

    asyncio.run(live())
    assert reported[2:] == [EVENTS + "drop", EVENTS + "refuse"]
