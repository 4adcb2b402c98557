"""The receivers of one message, from the events around it."""

from __future__ import annotations

from typing import Any

from polycast.pipelines.deliveries.receivers import LoggedMessage, to_response
from polycast.pipelines.deliveries.subscription_history import BrokerEvent, LoggedEvent

MESSAGE = LoggedMessage(10, "a.b", 3, 5_000_000, "hermod", "simplest-1 x:1", 7, 0)


def subscribe(offset: int, name: str, pattern: str = "a.b", echo: bool = True, start: Any = None) -> LoggedEvent:
    event = BrokerEvent(name, "hermod", "hermod.sub", "x:9", pattern, "exact", "a.b", echo, start)
    return LoggedEvent(offset, 1000, "subscribe", event)


def receivers(*logged: LoggedEvent, follower: int | None = None) -> list[tuple[str, str, int]]:
    response = to_response(MESSAGE, list(logged), follower)
    return [(row["connection"], row["how"], row["since_offset"]) for row in response["receivers"]]


def test_live_receivers() -> None:
    logged = [
        LoggedEvent(0, 0, "start", BrokerEvent()),
        subscribe(1, "stays"),
        subscribe(2, "goes"),
        LoggedEvent(3, 0, "disconnect", BrokerEvent("goes")),
        subscribe(11, "comes later"),
    ]
    assert receivers(*logged) == [("stays", "live", 1)]
    assert to_response(MESSAGE, logged)["note"] == ""
    assert receivers(*logged, LoggedEvent(12, 0, "disconnect", BrokerEvent("stays"))) == [("stays", "live", 1)]


def test_replay_receivers() -> None:
    logged = [
        subscribe(20, "all", start="earliest"),
        subscribe(21, "from then", start={"time": 5000}),
        subscribe(22, "too late", start={"time": 5001}),
        subscribe(23, "by sequence", start={"topics": {"a.b": 3}}),
        subscribe(24, "past it", start={"topics": {"a.b": 4}}),
        subscribe(25, "the last one", start="last"),
    ]
    assert [name for name, how, _ in receivers(*logged) if how == "replay"] == [
        "all", "from then", "by sequence", "the last one",
    ]  # fmt: skip
    assert "the last one" not in [name for name, _, _ in receivers(*logged, follower=15)]
    assert "the last one" in [name for name, _, _ in receivers(*logged, follower=26)]


def test_excluded_subscriptions() -> None:
    own = subscribe(1, "simplest-1 x:1", echo=False)
    response = to_response(MESSAGE, [own, subscribe(2, "simplest-2 x:2", echo=False)])
    assert [row["connection"] for row in response["receivers"]] == ["simplest-2 x:2"]
    assert response["silent"] == [
        {"connection": "simplest-1 x:1", "reason": "it published the message and has no echo"}
    ]
    over_link = MESSAGE._replace(source="#7 x:7")
    link = BrokerEvent("#8 x:8", listener="simplest.peer", pattern="a.b", kind="exact", value="a.b", echo=False)
    logged = [
        LoggedEvent(0, 0, "connect", BrokerEvent("#7 x:7", listener="simplest.peer")),
        LoggedEvent(1, 0, "subscribe", link),
    ]
    linked = to_response(over_link, logged)
    assert (linked["receivers"], len(linked["silent"])) == ([], 1)
    assert len(to_response(MESSAGE, logged)["receivers"]) == 1


def test_drops() -> None:
    drop = LoggedEvent(30, 0, "drop", BrokerEvent("slow", address="x:9", count=4, first=8, next=12))
    response = to_response(MESSAGE, [subscribe(1, "slow"), subscribe(2, "quick"), drop])
    assert [(row["connection"], row["may_have_lost_it"]) for row in response["receivers"]] == [
        ("slow", True),
        ("quick", False),
    ]
    assert response["drops"] == [{"connection": "slow", "address": "x:9", "messages": 4, "first": 8, "next": 12}]


def test_notes_about_unknown_subscriptions() -> None:
    assert "events.enabled" in to_response(MESSAGE, [])["note"]
    late = MESSAGE._replace(log_first=4)
    assert to_response(late, [subscribe(5, "c")])["note"] == "subscriptions before offset 4 are unknown"
    assert to_response(late, [subscribe(5, "c"), LoggedEvent(20, 0, "start", BrokerEvent())])["note"] != ""
