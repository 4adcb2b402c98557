"""`polycast request`, `topics`, `connections` and `stats`."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from access.gate import write_config
from kit.broker import Broker
from kit.frames import pub
from kit.program import Finished, polycast, polycast_here
from kit.room import Room
from kit.wire import GUARD_SECONDS
from polycast.cli.foreign_patterns import suggest
from polycast.client import connect
from polycast.model import Body, Exact, Format, Message


def at(broker: Broker) -> str:
    return f"tcp://127.0.0.1:{broker.ports['http']}"


def run_at(broker: Broker, *arguments: str) -> Finished:
    return polycast_here(*arguments, "--at", at(broker))


def describe(body: Body) -> Body:
    """What arrived: its format, and its bytes as text."""
    if body.payload == b"fail":
        raise ValueError("as you wish")
    text = f"{body.format} {body.payload.decode()}"
    return Body(json.dumps(text).encode(), Format.JSON)


@pytest.fixture(scope="module")
def responder(broker: Broker) -> Iterator[None]:
    """A responder for `describe` and, with an empty body, for `nothing`."""
    ready = threading.Event()

    def serve() -> None:
        with connect("ubre", at(broker)) as client:
            client.subscribe([Exact("responder/end")])
            client.serve("describe", describe)
            client.serve("nothing", lambda body: Body())
            ready.set()
            next(client.messages())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(GUARD_SECONDS)
    yield
    with connect("ubre", at(broker)) as client:
        client.publish([Message("responder/end", b"")])
    thread.join(GUARD_SECONDS)


# -- request ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "arrives"),
    [
        ('{"a": 1}', 'json {"a":1}'),
        ("[1, 2]", "json [1,2]"),
        ("42", "json 42"),
        ("1e400", "json 1e400"),
        ("true", "json true"),
        ("null", "json null"),
        ('"42"', "text 42"),
        ("hello world", "text hello world"),
        ("NaN", "text NaN"),
        ("größer", "text größer"),
        ("", "text "),
    ],
)
def test_a_body_that_parses_as_json_is_json(broker: Broker, responder: None, body: str, arrives: str) -> None:
    finished = run_at(broker, "request", "describe", body)
    assert (finished.code, finished.err) == (0, "")
    assert json.loads(finished.out) == arrives


def test_no_body(broker: Broker, responder: None) -> None:
    assert json.loads(run_at(broker, "request", "describe").out) == "none "


def test_a_body_from_stdin(broker: Broker, responder: None) -> None:
    finished = polycast("request", "describe", "-", "--at", at(broker), stdin=b'{"from":\n"stdin"}\n')
    assert json.loads(finished.out) == 'json {"from":"stdin"}'


def test_a_response_without_a_body_prints_nothing(broker: Broker, responder: None) -> None:
    finished = run_at(broker, "request", "nothing", "x")
    assert (finished.code, finished.out, finished.err) == (0, b"", "")


def test_a_failure_goes_to_stderr_with_code_1(broker: Broker, responder: None) -> None:
    failed = run_at(broker, "request", "describe", "fail")
    assert (failed.code, failed.out, failed.err) == (1, b"", "polycast: describe: as you wish\n")


def test_a_route_without_a_responder(broker: Broker) -> None:
    failed = run_at(broker, "request", "nowhere")
    assert (failed.code, failed.out) == (1, b"")
    assert failed.err.splitlines() == ["polycast: nowhere: NotFound", "hint: no client serves that route"]


def test_the_broker_serves_its_own_routes(broker: Broker, room: Room) -> None:
    subscriber = room.simplest(b"sub asked.for\n")
    finished = run_at(broker, "request", "polycast/publish", '{"topic": "asked.for", "body": "hello"}')
    assert set(json.loads(finished.out)) == {"offset", "sequence"}
    subscriber.expect(pub("asked.for", b"hello"))


@pytest.mark.parametrize("body", ["{a", "[1", '"open', os.fsdecode(b"\xff")])
def test_wrong_usage(broker: Broker, body: str) -> None:
    failed = run_at(broker, "request", "describe", body)
    assert (failed.code, failed.out) == (2, b"")
    assert "BODY" in failed.err


def test_no_response_in_time() -> None:
    """Somebody listens there, but says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        failed = polycast_here("request", "x", "--at", place, "--timeout", "0.2")
    assert (failed.code, failed.out) == (1, b"")
    assert "no reply within 0.2 s" in failed.err


@pytest.mark.parametrize("seconds", ["inf", "1e300", "1e9"])
def test_a_very_long_time(broker: Broker, seconds: str) -> None:
    finished = run_at(broker, "request", "polycast/topics", "--timeout", seconds)
    assert (finished.code, finished.err) == (0, "")


@pytest.mark.parametrize("seconds", ["nan", "-1", "0", "-inf", "soon"])
def test_an_invalid_time(broker: Broker, seconds: str) -> None:
    failed = run_at(broker, "request", "polycast/topics", "--timeout", seconds)
    assert (failed.code, failed.out) == (2, b"")
    assert failed.err != ""


@pytest.mark.parametrize("command", [["request", "x"], ["topics"], ["connections"], ["stats"]])
def test_without_a_broker_there_is_a_hint(command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    failed = polycast_here(*command, "--at", place)
    assert (failed.code, failed.out) == (1, b"")
    assert failed.err.startswith(f"polycast: cannot reach {place}")
    assert "hint: " in failed.err


# -- topics, connections, stats --------------------------------------------------------------------------


def test_topics(broker: Broker, room: Room) -> None:
    room.simplest(b"sub listed.a\n")
    room.simplest(pub("listed.a") * 3 + pub("listed.b"))
    rows = [json.loads(line) for line in run_at(broker, "topics", "--json").out.splitlines()]
    listed = {row["topic"]: row for row in rows if row["topic"].startswith("listed.")}
    assert {name: (row["sequence"], row["subscribers"]) for name, row in listed.items()} == {
        "listed.a": (3, 1),
        "listed.b": (1, 0),
    }


def test_topics_that_match_a_pattern(broker: Broker, room: Room) -> None:
    room.simplest(b"".join(pub(topic) for topic in ("some.a", "some.b", "so~me", "polycast/some")))
    listed = {
        pattern: [
            json.loads(line)["topic"] for line in run_at(broker, "topics", pattern, "--json").out.splitlines()
        ]
        for pattern in ("some.>", "~some", "some.a", "=some.>", "~~", "none.>")
    }
    assert listed == {
        "some.>": ["some.b", "some.a"], "~some": ["some.b", "some.a"], "some.a": ["some.a"],
        "=some.>": [], "~~": ["so~me"], "none.>": [],
    }  # fmt: skip
    empty = run_at(broker, "topics", "")
    assert (empty.code, empty.out) == (2, b"") and "hint: '>' matches everything" in empty.err


FOREIGN = {
    "foo.*": "'foo.>' is every topic that begins with foo.",
    "foo.*.bar": "'foo.>' is every topic that begins with foo.",
    "foo/#": "'foo/>' is every topic that begins with foo/",
    "foo/+/bar": "'foo/>' is every topic that begins with foo/",
    "foo*": "'foo>' is every topic that begins with foo",
    "*foo*": "'~foo' is every topic that contains foo",
    "*": "'>' is every topic",
    "#": "'>' is every topic",
    "+": "'>' is every topic",
    "+/x": "'>' is every topic",
}
OURS = ("foo", "foo.>", "~*", ">", "=foo.*", "C#", "a+b", "foo.c++", "#chat", "c+/d")


def test_patterns_of_other_systems_are_topics_with_a_note(broker: Broker) -> None:
    for pattern, better in FOREIGN.items():
        noted = run_at(broker, "topics", pattern)
        assert (noted.code, noted.out) == (0, b"")
        note = f"note: {pattern!r} is one topic here: *, + and # are no wildcards; {better}\n"
        assert noted.err == note
    for pattern in OURS:
        assert not suggest(pattern) or pattern[0] in "~=", pattern
        assert run_at(broker, "topics", pattern).err == "", pattern


def test_columns_in_a_pipe(broker: Broker, room: Room) -> None:
    room.simplest(pub("evil\x1b[2J"))
    lines = run_at(broker, "topics").out.decode().splitlines()
    assert lines[0].split() == ["topic", "sequence", "subscribers", "last"]
    [evil] = [line for line in lines if line.startswith("evil")]
    assert evil.split()[:3] == [r"evil\x1b[2J", "1", "0"]


def test_connections(broker: Broker, room: Room) -> None:
    room.simplest(b"sub a\nsub b\n")
    rows = [json.loads(line) for line in run_at(broker, "connections", "--json").out.splitlines()]
    assert any(row["dialect"] == "simplest" and row["subscriptions"] == 2 for row in rows)
    assert any(row["dialect"] == "ubre" for row in rows)
    assert run_at(broker, "connections").out.decode().split()[:3] == ["name", "listener", "dialect"]


def test_stats(broker: Broker) -> None:
    [row] = [json.loads(line) for line in run_at(broker, "stats", "--json").out.splitlines()]
    assert {each["listener"] for each in row["listeners"]} >= {"simplest", "http"}
    text = run_at(broker, "stats").out.decode()
    totals, _, listeners = text.partition("\n\n")
    assert "uptime_seconds" in totals
    assert "messages_in" in listeners.splitlines()[0]


# -- rights ----------------------------------------------------------------------------------------------

RIGHTS = {
    "admin": [["stats"], ["topics"], ["connections"], ["request", "polycast/stats"]],
    "publish TOPIC": [["request", "polycast/publish", '{"topic": "a", "body": 1}']],
    "publish 'a b'": [["request", "a b"], ["pub", "a b", "x"], ["pub", "a b", "x", "--dialect", "ubre"]],
    "subscribe 'a.>'": [["sub", "a.>", "--dialect", "hermod"]],
}


@pytest.mark.parametrize("rule", ["loopback may publish other", "loopback may admin over simplest"])
def test_a_refusal_names_the_right_that_is_missing(tmp_path: Path, rule: str) -> None:
    """Some peers lack the right, and some have none at all in the dialect."""
    config = write_config(tmp_path, rule, networks=())
    with Broker(f"--config={config}") as broker:
        listeners = {"pub": "hermod.pub", "sub": "hermod.sub"}
        for right, commands in RIGHTS.items():
            for command in commands:
                listener = "http" if "ubre" in command else listeners.get(command[0], "http")
                failed = polycast_here(*command, "--at", f"tcp://127.0.0.1:{broker.ports[listener]}")
                assert (failed.code, failed.out) == (1, b""), command
                hint = failed.err.splitlines()[-1]
                assert hint.startswith("hint: this needs 'IDENTITY may ") and hint.endswith(f"--{right}"), command


def test_a_dialect_without_replies_points_to_one_that_has_them(tmp_path: Path) -> None:
    config = write_config(tmp_path, "loopback may publish other", networks=())
    with Broker(f"--config={config}", listen=("simplest",)) as broker:
        place = f"tcp://127.0.0.1:{broker.ports['simplest']}"
        published = polycast_here("pub", "a", "b", "--dialect", "simplest", "--at", place)
        subscribed = polycast_here("sub", "a", "--at", place, "--no-reconnect")
    assert published.code == subscribed.code == 1
    assert "hermod and ubre report why a message is refused" in published.err
    assert "--dialect hermod shows a refusal" in subscribed.err
